<?php
/**
 * What happened to a job, in order. The rows are also the queue of the notifications to the dashboard.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const MAX_MESSAGE_CHARACTERS = 500;

/**
 * Record an event under the next number of its job. Once per revision and subject: a resumed publication repeats nothing.
 *
 * The caller holds the lock of the job, so the numbers have no gaps.
 *
 * @param array  $job     The job.
 * @param string $kind    One of media_ok, media_failed, seo_applied and done.
 * @param string $subject What it is about, such as the key of an image.
 * @param array  $detail  What the dashboard receives.
 */
function record_event( array $job, string $kind, string $subject, array $detail ) {
	global $wpdb;
	$table = table( 'autowriter_events' );
	$key   = $job['idempotency_key'];
	$last  = (int) $wpdb->get_var( $wpdb->prepare( "SELECT MAX(sequence) FROM $table WHERE idempotency_key = %s", $key ) );
	$wpdb->query(
		$wpdb->prepare(
			"INSERT IGNORE INTO $table (event_id, idempotency_key, home_blog_id, sequence, revision, kind, subject, detail,
			created_at, status, next_attempt_at, last_error) VALUES (%s, %s, %d, %d, %d, %s, %s, %s, %d, 'pending', %d, '')",
			wp_generate_uuid4(),
			$key,
			$job['home_blog_id'],
			$last + 1,
			$job['revision'],
			$kind,
			$subject,
			wp_json_encode( (object) $detail ),
			now(),
			now()
		)
	);
}

/**
 * Return the events of a job in the form of the wire format.
 *
 * @param string   $key      The idempotency key.
 * @param int|null $revision Only those of this revision.
 */
function list_events( string $key, $revision = null ): array {
	global $wpdb;
	$table = table( 'autowriter_events' );
	$rows  = $wpdb->get_results( $wpdb->prepare( "SELECT * FROM $table WHERE idempotency_key = %s ORDER BY sequence", $key ), ARRAY_A );
	$found = array();
	foreach ( $rows as $row ) {
		if ( null === $revision || (int) $row['revision'] === $revision ) {
			$found[] = format_event( $row );
		}
	}
	return $found;
}

/**
 * Return a row of the table in the form of the wire format.
 *
 * @param array $row The row.
 */
function format_event( array $row ): array {
	return array(
		'id'       => $row['event_id'],
		'sequence' => (int) $row['sequence'],
		'kind'     => $row['kind'],
		'revision' => (int) $row['revision'],
		'at'       => format_time( (int) $row['created_at'] ),
		'detail'   => (object) json_decode( $row['detail'], true ),
	);
}

/**
 * Shorten a message, so that no event gets too long to be sent.
 *
 * @param string $message The message.
 */
function shorten( string $message ): string {
	return mb_substr( wp_check_invalid_utf8( $message, true ), 0, MAX_MESSAGE_CHARACTERS );
}

/**
 * Return how many events of a job could not be delivered.
 *
 * @param string $key The idempotency key.
 */
function count_failed_events( string $key ): int {
	global $wpdb;
	$table = table( 'autowriter_events' );
	return (int) $wpdb->get_var( $wpdb->prepare( "SELECT COUNT(*) FROM $table WHERE idempotency_key = %s AND status = 'failed'", $key ) );
}
