<?php
// For a site that no web server serves yet.
$request = json_decode( stream_get_contents( STDIN ), true );
$_SERVER += array(
	'REQUEST_URI'     => $request['path'],
	'REQUEST_METHOD'  => 'GET',
	'SERVER_PROTOCOL' => 'HTTP/1.1',
	'REMOTE_ADDR'     => '127.0.0.1',
);
chdir( getenv( 'WORDPRESS_FOLDER' ) );
require getenv( 'WORDPRESS_FOLDER' ) . '/wp-load.php';
tests_evaluate( $request );
