<?php
/**
 * Who may use the routes: those who sign with a secret of this site.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const MAX_BODY_BYTES = 16777216;

/**
 * Check the signature of a request. The permission callback of all routes.
 *
 * @param \WP_REST_Request $request The request.
 * @return true|\WP_Error
 */
function authenticate( \WP_REST_Request $request ) {
	try {
		check_signature( $request );
		return true;
	} catch ( Failure $failure ) {
		return $failure->to_wp_error();
	}
}

/**
 * Check the signature, then the limits of its key: a stranger must not be able to use them up.
 *
 * @param \WP_REST_Request $request The request.
 * @throws Failure If it is not accepted.
 */
function check_signature( \WP_REST_Request $request ) {
	$key_id = (string) $request->get_header( 'x_autowriter_key_id' );
	$nonce  = (string) $request->get_header( 'x_autowriter_nonce' );
	$at     = (string) $request->get_header( 'x_autowriter_timestamp' );
	$claim  = (string) $request->get_header( 'x_autowriter_signature' );
	if ( '' === $key_id || '' === $nonce || '' === $at || '' === $claim ) {
		throw new Failure( 'AUTH_FAILED', 'The request is not signed: the X-Autowriter headers are missing.' );
	}
	$secret = find_secret( $key_id );
	if ( '' === $secret ) {
		throw new Failure( 'AUTH_FAILED', 'This site does not know the key id: connect it again with a new secret.' );
	}
	check_body_size( $request );
	check_query( $request );
	$expected = sign( $secret, $request->get_method(), $request->get_route(), $at, $nonce, (string) $request->get_body() );
	if ( ! hash_equals( $expected, $claim ) ) {
		throw new Failure( 'HMAC_INVALID', 'The signature does not match the request: check the secret.' );
	}
	if ( ! is_timely( $at ) ) {
		throw new Failure( 'HMAC_INVALID', 'The timestamp is more than 5 minutes from the time of this server: check both clocks.' );
	}
	if ( 1 !== preg_match( '/^[A-Za-z0-9_-]{16,64}$/', $nonce ) ) {
		throw new Failure( 'HMAC_INVALID', 'The nonce must have 16 to 64 letters, digits, - or _.' );
	}
	$delay = get_rate_limit_delay( $key_id );
	if ( $delay ) {
		throw new Failure( 'RATE_LIMIT', 'This key made too many requests.', array( 'retry_after' => $delay ) );
	}
	if ( ! use_nonce( $key_id, $nonce, (int) $at ) ) {
		throw new Failure( 'HMAC_INVALID', 'This request was received before: its nonce was already used.' );
	}
	remember_signing_key( $key_id );
}

/**
 * Refuse parameters in the query, which is not signed. The only one is the route itself, for sites without permalinks.
 *
 * @param \WP_REST_Request $request The request.
 * @throws Failure If there is another one.
 */
function check_query( \WP_REST_Request $request ) {
	if ( array_diff( array_keys( $request->get_query_params() ), array( 'rest_route' ) ) ) {
		throw new Failure( 'HMAC_INVALID', 'The query has parameters, which are not signed: send none but rest_route.' );
	}
}

/**
 * Refuse a body that is too large for this plugin, or that PHP has dropped because it was too large for this server.
 *
 * @param \WP_REST_Request $request The request.
 * @throws Failure If it is too large.
 */
function check_body_size( \WP_REST_Request $request ) {
	$bytes   = strlen( (string) $request->get_body() );
	$claimed = (int) $request->get_header( 'content_length' );
	if ( $bytes > MAX_BODY_BYTES || ( 0 === $bytes && $claimed > get_max_body_bytes() ) ) {
		throw new Failure(
			'BODY_TOO_LARGE',
			sprintf( 'The body has %d bytes, and this site accepts %d.', max( $bytes, $claimed ), get_max_body_bytes() )
		);
	}
}

/**
 * Return the size of the largest body that this site accepts, in bytes.
 */
function get_max_body_bytes(): int {
	$limit = wp_convert_hr_to_bytes( (string) ini_get( 'post_max_size' ) );
	return $limit > 0 ? min( MAX_BODY_BYTES, $limit ) : MAX_BODY_BYTES;
}
