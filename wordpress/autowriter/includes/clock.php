<?php
/**
 * The time.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the time in Unix seconds.
 */
function now(): int {
	/**
	 * Filters the time that signatures, limits and retries go by.
	 *
	 * @param int $seconds Unix time.
	 */
	return (int) apply_filters( 'autowriter_now', time() );
}

/**
 * Return a time as the wire format has it: ISO 8601 in UTC.
 *
 * @param int $seconds Unix time.
 */
function format_time( int $seconds ): string {
	return gmdate( 'Y-m-d\TH:i:s\Z', $seconds );
}
