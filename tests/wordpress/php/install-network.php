<?php
// Turn the installed site into a network. Its other sites are created afterwards, when it is one.
define( 'WP_INSTALLING_NETWORK', true );
$_SERVER += array( 'REQUEST_URI' => '/' );
chdir( getenv( 'WORDPRESS_FOLDER' ) );
require getenv( 'WORDPRESS_FOLDER' ) . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
require_once ABSPATH . 'wp-admin/includes/network.php';
foreach ( $wpdb->tables( 'ms_global' ) as $table => $name ) {
	$wpdb->$table = $name;
}
install_network();
$result = populate_network( 1, '127.0.0.1', 'admin@example.com', 'Rede', '/', false );
if ( is_wp_error( $result ) && 'no_wildcard_dns' !== $result->get_error_code() ) {
	fwrite( STDERR, $result->get_error_message() );
	exit( 1 );
}
