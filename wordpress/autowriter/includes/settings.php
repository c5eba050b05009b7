<?php
/**
 * The settings of one site, and the names of everything that the plugin stores with it.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const DASHBOARD_OPTION   = 'autowriter_dashboard_url';
const AUTHOR_OPTION      = 'autowriter_author';
const RATE_OPTION        = 'autowriter_requests_per_minute';
const SECRETS_OPTION     = 'autowriter_secrets';
const SIGNING_KEY_OPTION = 'autowriter_signing_key';
const DEFAULT_RATE       = 300;

const REST_NAMESPACE = 'autowriter/v1';

const KEY_META       = '_autowriter_key';
const LANGUAGE_META  = '_autowriter_language';
const MARK_META      = '_autowriter_mark';
const IMAGE_KEY_META = '_autowriter_image_key';

const OPTIONS   = array( DASHBOARD_OPTION, AUTHOR_OPTION, RATE_OPTION, SECRETS_OPTION, SIGNING_KEY_OPTION );
const POST_META = array( KEY_META, LANGUAGE_META, MARK_META, IMAGE_KEY_META );

/**
 * Return the address of the dashboard without a slash at its end, or '' until it is set.
 */
function get_dashboard_url(): string {
	return untrailingslashit( (string) get_option( DASHBOARD_OPTION, '' ) );
}

/**
 * Return how many requests a key may make in a minute.
 */
function get_requests_per_minute(): int {
	return max( 1, (int) get_option( RATE_OPTION, DEFAULT_RATE ) );
}

/**
 * Return the user who owns the drafts of this site: the chosen one, or else its first administrator. 0 if it has none.
 */
function get_author_id(): int {
	$chosen = (int) get_option( AUTHOR_OPTION, 0 );
	if ( $chosen && get_userdata( $chosen ) ) {
		return $chosen;
	}
	$found = get_users(
		array(
			'role'    => 'administrator',
			'orderby' => 'ID',
			'number'  => 1,
			'fields'  => 'ID',
		)
	);
	return $found ? (int) $found[0] : 0;
}
