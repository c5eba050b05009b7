<?php
/**
 * Send events to the dashboard, by WP-Cron, until it has received them or too many attempts have failed.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const DELIVERY_HOOK   = 'autowriter_deliver_events';
const EVENT_ROUTE     = '/webhooks/wp-job-updated';
const MAX_EVENT_BYTES = 65536;
const BATCH           = 50;
const RETRY_DELAYS    = array( 30, 120, 600, 1800, 7200, 21600, 43200 );

/**
 * Send the events of the current site that are due, those of each job in order.
 */
function deliver_due_events() {
	with_lock( 'deliver ' . get_current_blog_id(), 0, __NAMESPACE__ . '\deliver_batch', '__return_null' );
	schedule_next_delivery();
}

/**
 * Send one batch. After a failure the later events of that job wait: they would arrive out of order.
 */
function deliver_batch() {
	$waiting = array();
	foreach ( list_due_events() as $event ) {
		$key = $event['idempotency_key'];
		if ( empty( $waiting[ $key ] ) ) {
			$problem         = send_event( build_event_body( $event ) );
			$waiting[ $key ] = '' !== $problem;
			record_attempt( $event, $problem );
		}
	}
}

/**
 * Return due events, except those after one of the same job that waits for its next attempt.
 */
function list_due_events(): array {
	global $wpdb;
	$table = table( 'autowriter_events' );
	$jobs  = table( 'autowriter_jobs' );
	return $wpdb->get_results(
		$wpdb->prepare(
			"SELECT e.*, j.job_id, j.blog_id FROM $table e JOIN $jobs j ON j.idempotency_key = e.idempotency_key
			WHERE e.status = 'pending' AND e.next_attempt_at <= %d AND e.home_blog_id = %d AND NOT EXISTS (
				SELECT 1 FROM $table before_it WHERE before_it.idempotency_key = e.idempotency_key
				AND before_it.sequence < e.sequence AND before_it.status = 'pending' AND before_it.next_attempt_at > %d
			) ORDER BY e.id LIMIT %d",
			now(),
			get_current_blog_id(),
			now(),
			BATCH
		),
		ARRAY_A
	);
}

/**
 * Return the body of a notification. A detail that would make it too long is left out.
 *
 * @param array $event A row, with `job_id` and `blog_id` of its job.
 */
function build_event_body( array $event ): string {
	$formatted = format_event( $event );
	$members   = array(
		'event_id'        => $formatted['id'],
		'sequence'        => $formatted['sequence'],
		'idempotency_key' => $event['idempotency_key'],
		'job_id'          => $event['job_id'],
		'site_url'        => home_url( '/' ),
		'blog_id'         => (int) $event['blog_id'],
		'revision'        => $formatted['revision'],
		'kind'            => $formatted['kind'],
		'at'              => $formatted['at'],
		'detail'          => $formatted['detail'],
	);

	$body = wp_json_encode( $members );
	if ( strlen( $body ) <= MAX_EVENT_BYTES ) {
		return $body;
	}
	return wp_json_encode( array( 'detail' => array( 'truncated' => true ) ) + $members );
}

/**
 * Send one body to the dashboard. Return '' if it was accepted, or what went wrong.
 *
 * @param string $body JSON.
 */
function send_event( string $body ): string {
	$signing = get_signing_secret();
	if ( '' === get_dashboard_url() || null === $signing ) {
		return __( 'the dashboard is not connected', 'autowriter' );
	}
	$headers = build_signed_headers( $signing[0], $signing[1], 'POST', EVENT_ROUTE, $body );
	$answer  = wp_remote_post(
		get_dashboard_url() . EVENT_ROUTE,
		array(
			'headers'            => $headers + array( 'Content-Type' => 'application/json' ),
			'body'               => $body,
			'timeout'            => 10,
			'redirection'        => 0,
			// In a network, the administrator of one site must not reach the internal services of the server.
			'reject_unsafe_urls' => is_multisite() && ! is_main_site(),
		)
	);
	if ( is_wp_error( $answer ) ) {
		return shorten( $answer->get_error_message() );
	}
	$status = (int) wp_remote_retrieve_response_code( $answer );
	/* translators: %d: HTTP status code. */
	return $status >= 200 && $status < 300 ? '' : sprintf( __( 'the dashboard answered with status %d', 'autowriter' ), $status );
}

/**
 * Record an attempt, and when the next one is due if it failed.
 *
 * @param array  $event   The row.
 * @param string $problem What went wrong, or ''.
 */
function record_attempt( array $event, string $problem ) {
	global $wpdb;
	$attempts = (int) $event['attempts'] + 1;
	$again    = isset( RETRY_DELAYS[ $attempts - 1 ] ) ? RETRY_DELAYS[ $attempts - 1 ] : null;
	$failed   = null === $again ? 'failed' : 'pending';
	$wpdb->update(
		table( 'autowriter_events' ),
		array(
			'attempts'        => $attempts,
			'status'          => '' === $problem ? 'delivered' : $failed,
			'next_attempt_at' => now() + (int) $again,
			'last_error'      => $problem,
		),
		array( 'id' => $event['id'] )
	);
}

/**
 * Schedule the delivery of the event of the current site that is due next. Only the first pending one of a job counts.
 */
function schedule_next_delivery() {
	global $wpdb;
	$table = table( 'autowriter_events' );
	$next  = $wpdb->get_var(
		$wpdb->prepare(
			"SELECT MIN(e.next_attempt_at) FROM $table e WHERE e.status = 'pending' AND e.home_blog_id = %d AND NOT EXISTS (
				SELECT 1 FROM $table before_it WHERE before_it.idempotency_key = e.idempotency_key
				AND before_it.sequence < e.sequence AND before_it.status = 'pending'
			)",
			get_current_blog_id()
		)
	);
	if ( null !== $next ) {
		schedule_delivery( (int) $next );
	}
}

/**
 * Schedule a delivery, unless an earlier one is scheduled.
 *
 * @param int $at Unix time.
 */
function schedule_delivery( int $at ) {
	$scheduled = wp_next_scheduled( DELIVERY_HOOK, array( 'once' ) );
	if ( false === $scheduled || $scheduled > $at ) {
		// WordPress ignores a second event within ten minutes of the first, even an earlier one.
		wp_clear_scheduled_hook( DELIVERY_HOOK, array( 'once' ) );
		wp_schedule_single_event( $at, DELIVERY_HOOK, array( 'once' ) );
	}
}

/**
 * Schedule a delivery every hour, in case that a single one is lost.
 */
function schedule_hourly_delivery() {
	if ( ! wp_next_scheduled( DELIVERY_HOOK ) ) {
		wp_schedule_event( now() + HOUR_IN_SECONDS, 'hourly', DELIVERY_HOOK );
	}
}

/**
 * Let requests to the routes of the plugin start WP-Cron at their end and not at their beginning. WordPress starts it
 * once at a time, so that at the beginning would keep the events of the request waiting for the next visitor.
 */
function postpone_cron() {
	$address = isset( $_SERVER['REQUEST_URI'] ) ? rawurldecode( esc_url_raw( wp_unslash( $_SERVER['REQUEST_URI'] ) ) ) : '';
	if ( false !== strpos( $address, REST_NAMESPACE ) ) {
		remove_action( 'init', 'wp_cron' );
		add_action( 'shutdown', __NAMESPACE__ . '\start_cron' );
	}
}

/**
 * Start WP-Cron, unless the server starts it by itself.
 */
function start_cron() {
	if ( ! ( defined( 'DISABLE_WP_CRON' ) && DISABLE_WP_CRON ) ) {
		spawn_cron();
	}
}
