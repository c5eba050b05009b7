<?php
/**
 * The secrets of one site. One is valid, or two while one replaces the other.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the secrets, the newest first: arrays with `key_id`, `secret` and `created_at`.
 */
function list_secrets(): array {
	$stored = get_option( SECRETS_OPTION, array() );
	return is_array( $stored ) ? $stored : array();
}

/**
 * Create a secret and return it in the form that the dashboard takes: the key id, a dot, and the secret. It is shown once.
 *
 * @throws \LogicException If two secrets are valid already.
 */
function create_secret(): string {
	$secrets = list_secrets();
	if ( count( $secrets ) >= 2 ) {
		throw new \LogicException( 'Two secrets are valid already: finish the rotation first.' );
	}
	$made = array(
		'key_id'     => 'aw_' . bin2hex( random_bytes( 6 ) ),
		'secret'     => bin2hex( random_bytes( 32 ) ),
		'created_at' => now(),
	);
	array_unshift( $secrets, $made );
	update_option( SECRETS_OPTION, $secrets, false );
	return $made['key_id'] . '.' . $made['secret'];
}

/**
 * Stop accepting all secrets except the newest.
 */
function retire_old_secrets() {
	update_option( SECRETS_OPTION, array_slice( list_secrets(), 0, 1 ), false );
}

/**
 * Return the secret with this key id, or '' if there is none.
 *
 * @param string $key_id The key id.
 */
function find_secret( string $key_id ): string {
	foreach ( list_secrets() as $each ) {
		if ( $each['key_id'] === $key_id ) {
			return $each['secret'];
		}
	}
	return '';
}

/**
 * Remember which key the dashboard uses, so events are signed with a secret that it has.
 *
 * @param string $key_id The key id of a request with a valid signature.
 */
function remember_signing_key( string $key_id ) {
	if ( get_option( SIGNING_KEY_OPTION ) !== $key_id ) {
		update_option( SIGNING_KEY_OPTION, $key_id );
	}
}

/**
 * Return the key id and the secret that sign events: those that the dashboard used last, or else the oldest, which it got
 * first. Null if this site has no secret.
 */
function get_signing_secret() {
	$secrets = list_secrets();
	if ( ! $secrets ) {
		return null;
	}
	$key_id = (string) get_option( SIGNING_KEY_OPTION, '' );
	$secret = find_secret( $key_id );
	$oldest = end( $secrets );
	return $secret ? array( $key_id, $secret ) : array( $oldest['key_id'], $oldest['secret'] );
}
