<?php
/**
 * The nonces of recent requests. They prevent replays, and are counted for the rate limit.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Store a nonce until its request is too old to be accepted. Return false if it was used before.
 *
 * @param string $key_id    The key id.
 * @param string $nonce     The nonce.
 * @param int    $timestamp The time in the request, which may be up to the window ahead.
 * @throws Failure If the database does not take it.
 */
function use_nonce( string $key_id, string $nonce, int $timestamp ): bool {
	global $wpdb;
	$table = table( 'autowriter_nonces' );
	$wpdb->query( $wpdb->prepare( "DELETE FROM $table WHERE expires_at < %d LIMIT 100", now() ) );
	$added = $wpdb->query(
		$wpdb->prepare(
			"INSERT IGNORE INTO $table (key_id, nonce, seen_at, expires_at) VALUES (%s, %s, %d, %d)",
			$key_id,
			$nonce,
			now(),
			$timestamp + WINDOW_SECONDS
		)
	);
	if ( false === $added ) {
		throw new Failure( 'PUBLISH_FAILED', 'The request could not be stored: the database of this site has a problem.' );
	}
	return 1 === $added;
}

/**
 * Return how many seconds this key must wait until it may make another request; 0 if it need not wait.
 *
 * @param string $key_id The key id.
 */
function get_rate_limit_delay( string $key_id ): int {
	global $wpdb;
	$table = table( 'autowriter_nonces' );
	$limit = get_requests_per_minute();
	// The oldest of the last requests that fill the limit: when it leaves the minute, there is room for another.
	$oldest = $wpdb->get_var(
		$wpdb->prepare(
			"SELECT seen_at FROM $table WHERE key_id = %s AND seen_at > %d ORDER BY seen_at DESC LIMIT 1 OFFSET %d",
			$key_id,
			now() - MINUTE_IN_SECONDS,
			$limit - 1
		)
	);
	return null === $oldest ? 0 : max( 1, (int) $oldest + MINUTE_IN_SECONDS - now() );
}
