<?php
// Install one site, with an administrator.
define( 'WP_INSTALLING', true );
$_SERVER += array( 'REQUEST_URI' => '/' );
function wp_new_blog_notification() {}
chdir( getenv( 'WORDPRESS_FOLDER' ) );
require getenv( 'WORDPRESS_FOLDER' ) . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install( 'Casa & Jardim', 'admin', 'admin@example.com', true, '', 'admin' );
update_option( 'permalink_structure', '/%postname%/' );
