<?php
/**
 * The tables. A network has one set of them, because a key names one article in all its sites.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const SCHEMA_VERSION = 2;
const SCHEMA_OPTION  = 'autowriter_schema_version';
const TABLES         = array( 'autowriter_jobs', 'autowriter_events', 'autowriter_nonces' );

/**
 * Return the full name of a table.
 *
 * @param string $name One of TABLES.
 */
function table( string $name ): string {
	global $wpdb;
	return $wpdb->base_prefix . $name;
}

/**
 * Create the tables, or bring those of an earlier version up to date. Their rows stay.
 */
function upgrade_schema() {
	if ( is_schema_current() ) {
		return;
	}
	with_lock(
		'schema',
		30,
		function () {
			if ( ! is_schema_current() ) {
				require_once ABSPATH . 'wp-admin/includes/upgrade.php';
				dbDelta( build_schema() );
				update_site_option( SCHEMA_OPTION, SCHEMA_VERSION );
			}
		},
		'__return_null'
	);
}

/**
 * Return whether the tables have the form that this version needs.
 */
function is_schema_current(): bool {
	return SCHEMA_VERSION === (int) get_site_option( SCHEMA_OPTION );
}

/**
 * Drop the tables with everything in them.
 */
function drop_tables() {
	global $wpdb;
	foreach ( TABLES as $name ) {
		$wpdb->query( 'DROP TABLE IF EXISTS ' . table( $name ) );
	}
	delete_site_option( SCHEMA_OPTION );
}

/**
 * Return the statements for dbDelta, which reads them line by line. Times are Unix seconds.
 *
 * Columns of autowriter_jobs: `home_blog_id` is the site whose secret signed the request and `blog_id` the site of the
 * post; `drafts` counts the drafts begun, of which `post_id` is the last; `written` has the fingerprint of what the
 * plugin last wrote, and is empty while it writes; `answer` is replayed; `note` marks a rejected draft.
 */
function build_schema(): string {
	global $wpdb;
	$jobs    = table( 'autowriter_jobs' );
	$events  = table( 'autowriter_events' );
	$nonces  = table( 'autowriter_nonces' );
	$charset = $wpdb->get_charset_collate();
	return "CREATE TABLE $jobs (
		id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
		idempotency_key char(64) NOT NULL,
		job_id varchar(191) NOT NULL,
		home_blog_id bigint(20) unsigned NOT NULL,
		blog_id bigint(20) unsigned NOT NULL,
		post_id bigint(20) unsigned NOT NULL DEFAULT 0,
		drafts int(10) unsigned NOT NULL DEFAULT 1,
		revision int(10) unsigned NOT NULL,
		body_hash char(64) NOT NULL,
		status varchar(20) NOT NULL,
		steps longtext NOT NULL,
		written longtext NOT NULL,
		answer longtext NOT NULL,
		error longtext NOT NULL,
		note text NOT NULL,
		created_at bigint(20) unsigned NOT NULL,
		updated_at bigint(20) unsigned NOT NULL,
		PRIMARY KEY  (id),
		UNIQUE KEY idempotency_key (idempotency_key),
		KEY jobs_of_site (home_blog_id,updated_at)
	) $charset;
	CREATE TABLE $events (
		id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
		event_id char(36) NOT NULL,
		idempotency_key char(64) NOT NULL,
		home_blog_id bigint(20) unsigned NOT NULL,
		sequence int(10) unsigned NOT NULL,
		revision int(10) unsigned NOT NULL,
		kind varchar(20) NOT NULL,
		subject varchar(140) NOT NULL,
		detail longtext NOT NULL,
		created_at bigint(20) unsigned NOT NULL,
		status varchar(20) NOT NULL,
		attempts int(10) unsigned NOT NULL DEFAULT 0,
		next_attempt_at bigint(20) unsigned NOT NULL,
		last_error text NOT NULL,
		PRIMARY KEY  (id),
		UNIQUE KEY event_id (event_id),
		UNIQUE KEY sequence_of_job (idempotency_key,sequence),
		UNIQUE KEY once_per_revision (idempotency_key,revision,kind,subject),
		KEY events_due (status,next_attempt_at)
	) $charset;
	CREATE TABLE $nonces (
		key_id varchar(40) NOT NULL,
		nonce varchar(64) NOT NULL,
		seen_at bigint(20) unsigned NOT NULL,
		expires_at bigint(20) unsigned NOT NULL,
		PRIMARY KEY  (key_id,nonce),
		KEY requests_of_key (key_id,seen_at),
		KEY nonces_expired (expires_at)
	) $charset;";
}
