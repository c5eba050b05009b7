<?php
// For PHP's own web server: files as they are, the sites of a network by their first folder, and the rest to WordPress.
$root = $_SERVER['DOCUMENT_ROOT'];
$path = parse_url( $_SERVER['REQUEST_URI'], PHP_URL_PATH );
$path = preg_replace( '#^/[a-z0-9-]+(/wp-(?:admin|includes|content|login\.php|cron\.php).*)#', '$1', $path );
$path = rtrim( $path, '/' ) === '/wp-admin' ? '/wp-admin/index.php' : $path;
$file = $root . $path;
if ( '.php' === substr( $path, -4 ) && is_file( $file ) ) {
	$_SERVER['SCRIPT_NAME']     = $path;
	$_SERVER['PHP_SELF']        = $path;
	$_SERVER['SCRIPT_FILENAME'] = $file;
	chdir( dirname( $file ) );
	require $file;
	return true;
}
if ( '/' !== $path && is_file( $file ) ) {
	return false;
}
$_SERVER['SCRIPT_NAME']     = '/index.php';
$_SERVER['PHP_SELF']        = '/index.php';
$_SERVER['SCRIPT_FILENAME'] = "$root/index.php";
chdir( $root );
require "$root/index.php";
