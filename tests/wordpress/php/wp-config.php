<?php
// One copy of WordPress serves several databases: the process that runs it says which.
define( 'DB_NAME', getenv( 'WORDPRESS_DATABASE' ) );
define( 'DB_USER', 'root' );
define( 'DB_PASSWORD', '' );
define( 'DB_HOST', 'localhost:' . getenv( 'WORDPRESS_SOCKET' ) );
define( 'DB_CHARSET', 'utf8mb4' );
define( 'DB_COLLATE', '' );
foreach ( array( 'AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY' ) as $name ) {
	define( $name, "tests only: $name" );
}
foreach ( array( 'AUTH_SALT', 'SECURE_AUTH_SALT', 'LOGGED_IN_SALT', 'NONCE_SALT' ) as $name ) {
	define( $name, "tests only: $name" );
}
$table_prefix = 'wp_';

define( 'WP_ENVIRONMENT_TYPE', 'local' );
define( 'WP_DEBUG', true );
define( 'WP_DEBUG_DISPLAY', false );
define( 'WP_DEBUG_LOG', getenv( 'WORDPRESS_LOG' ) );
define( 'DISABLE_WP_CRON', ! getenv( 'WORDPRESS_CRON' ) );
define( 'AUTOMATIC_UPDATER_DISABLED', true );
define( 'WP_HTTP_BLOCK_EXTERNAL', true );
define( 'WP_ACCESSIBLE_HOSTS', '127.0.0.1' );

// The sites of a network cannot have a port in their domain, so it is removed here and added to their addresses in must-use.php.
$port = getenv( 'WORDPRESS_PORT' );
if ( getenv( 'WORDPRESS_NETWORK' ) ) {
	$_SERVER['HTTP_HOST'] = '127.0.0.1';
	define( 'WP_ALLOW_MULTISITE', true );
	if ( 'installed' === getenv( 'WORDPRESS_NETWORK' ) ) {
		define( 'MULTISITE', true );
		define( 'SUBDOMAIN_INSTALL', false );
		define( 'DOMAIN_CURRENT_SITE', '127.0.0.1' );
		define( 'PATH_CURRENT_SITE', '/' );
		define( 'SITE_ID_CURRENT_SITE', 1 );
		define( 'BLOG_ID_CURRENT_SITE', 1 );
	}
} else {
	$_SERVER['HTTP_HOST'] = "127.0.0.1:$port";
	define( 'WP_HOME', "http://127.0.0.1:$port" );
	define( 'WP_SITEURL', "http://127.0.0.1:$port" );
}

if ( ! defined( 'ABSPATH' ) ) {
	define( 'ABSPATH', __DIR__ . '/' );
}
require_once ABSPATH . 'wp-settings.php';
