<?php
/**
 * The signature of requests in both directions: HMAC-SHA256 over the method, the route, the time, a nonce and the body.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const WINDOW_SECONDS = 300;

/**
 * Return the signature of a request, in hexadecimal digits.
 *
 * @param string $secret    The secret.
 * @param string $method    The HTTP method, in capitals.
 * @param string $route     The REST route with its namespace. Not the path of the URL: that depends on permalinks,
 *                          folders and proxies.
 * @param string $timestamp Unix seconds.
 * @param string $nonce     A value that is used once.
 * @param string $body      The body as it is sent.
 */
function sign( string $secret, string $method, string $route, string $timestamp, string $nonce, string $body ): string {
	return hash_hmac( 'sha256', "$method\n$route\n$timestamp\n$nonce\n$body", $secret );
}

/**
 * Return the headers of a request that this site sends.
 *
 * @param string $key_id The key id.
 * @param string $secret The secret.
 * @param string $method The HTTP method.
 * @param string $route  The route.
 * @param string $body   The body.
 */
function build_signed_headers( string $key_id, string $secret, string $method, string $route, string $body ): array {
	$timestamp = (string) now();
	$nonce     = wp_generate_uuid4();
	return array(
		'X-Autowriter-Key-Id'    => $key_id,
		'X-Autowriter-Timestamp' => $timestamp,
		'X-Autowriter-Nonce'     => $nonce,
		'X-Autowriter-Signature' => sign( $secret, $method, $route, $timestamp, $nonce, $body ),
	);
}

/**
 * Return whether a timestamp is a number of seconds within the window.
 *
 * @param string $timestamp The header.
 */
function is_timely( string $timestamp ): bool {
	return 1 === preg_match( '/^\d{1,11}$/', $timestamp ) && abs( now() - (int) $timestamp ) <= WINDOW_SECONDS;
}
