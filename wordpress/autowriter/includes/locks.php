<?php
/**
 * Named locks of the database, which all web servers of a site share.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Run a function while nobody else runs one under the same name. The database releases the lock of a process that dies.
 *
 * @param string   $name    What is locked.
 * @param int      $seconds How long to wait for the lock.
 * @param callable $work    The function.
 * @param callable $busy    Called instead if the lock is taken.
 * @return mixed What the called function returns.
 */
function with_lock( string $name, int $seconds, callable $work, callable $busy ) {
	global $wpdb;
	// A name has at most 64 characters, and the server shares its names between all its databases.
	$lock = 'aw_' . substr( hash( 'sha256', DB_NAME . $wpdb->base_prefix . $name ), 0, 48 );
	if ( '1' !== (string) $wpdb->get_var( $wpdb->prepare( 'SELECT GET_LOCK(%s, %d)', $lock, $seconds ) ) ) {
		return $busy();
	}
	try {
		return $work();
	} finally {
		$wpdb->query( $wpdb->prepare( 'SELECT RELEASE_LOCK(%s)', $lock ) );
	}
}
