<?php
/**
 * The rows of autowriter_jobs: one for each article, whatever its revision.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const FINISHED = array( 'done', 'partial' );
const JSON     = array( 'steps', 'written', 'answer', 'error' );
const NUMBERS  = array( 'id', 'home_blog_id', 'blog_id', 'post_id', 'drafts', 'revision', 'created_at', 'updated_at' );

/**
 * Return the job with this key, or null.
 *
 * @param string $key The idempotency key.
 */
function find_job( string $key ) {
	global $wpdb;
	$table = table( 'autowriter_jobs' );
	$row   = $wpdb->get_row( $wpdb->prepare( "SELECT * FROM $table WHERE idempotency_key = %s", $key ), ARRAY_A );
	return $row ? read_job( $row ) : null;
}

/**
 * Return the job with this key if its dashboard is connected to the current site.
 *
 * @param string $key The idempotency key.
 * @throws Failure If there is none.
 */
function get_own_job( string $key ): array {
	$job = find_job( $key );
	if ( null === $job || get_current_blog_id() !== $job['home_blog_id'] ) {
		throw new Failure( 'JOB_NOT_FOUND', 'This site knows no job with this key.' );
	}
	return $job;
}

/**
 * Insert the job of an article that is published for the first time, and return it.
 *
 * @param array $publication The publication.
 * @param int   $blog_id     The site of the post.
 * @throws Failure If the database does not take it.
 */
function insert_job( array $publication, int $blog_id ): array {
	global $wpdb;
	$added = $wpdb->insert(
		table( 'autowriter_jobs' ),
		encode_columns(
			array(
				'idempotency_key' => $publication['idempotency_key'],
				'job_id'          => $publication['job_id'],
				'home_blog_id'    => get_current_blog_id(),
				'blog_id'         => $blog_id,
				'revision'        => $publication['revision'],
				'body_hash'       => $publication['body_hash'],
				'status'          => 'publishing',
				'steps'           => array(),
				'written'         => array(),
				'answer'          => array(),
				'error'           => array(),
				'note'            => '',
				'created_at'      => now(),
				'updated_at'      => now(),
			)
		)
	);
	if ( ! $added ) {
		throw new Failure( 'PUBLISH_FAILED', 'The job could not be stored.' );
	}
	return find_job( $publication['idempotency_key'] );
}

/**
 * Change columns of a job, and return it as it then is.
 *
 * @param array $job     The job.
 * @param array $columns The new values.
 * @throws Failure If the database does not take them.
 */
function update_job( array $job, array $columns ): array {
	global $wpdb;
	$columns['updated_at'] = now();
	$updated               = $wpdb->update( table( 'autowriter_jobs' ), encode_columns( $columns ), array( 'id' => $job['id'] ) );
	if ( false === $updated ) {
		throw new Failure( 'PUBLISH_FAILED', 'The job could not be stored.' );
	}
	return $columns + $job;
}

/**
 * Return one page of the jobs of the current site, the last changed first.
 *
 * @param int $page     From 1 on.
 * @param int $per_page How many.
 */
function list_jobs( int $page, int $per_page ): array {
	global $wpdb;
	$table = table( 'autowriter_jobs' );
	$rows  = $wpdb->get_results(
		$wpdb->prepare(
			"SELECT * FROM $table WHERE home_blog_id = %d ORDER BY updated_at DESC, id DESC LIMIT %d OFFSET %d",
			get_current_blog_id(),
			$per_page,
			( $page - 1 ) * $per_page
		),
		ARRAY_A
	);
	return array_map( __NAMESPACE__ . '\read_job', $rows );
}

/**
 * Return how many jobs the current site has.
 */
function count_jobs(): int {
	global $wpdb;
	$table = table( 'autowriter_jobs' );
	return (int) $wpdb->get_var( $wpdb->prepare( "SELECT COUNT(*) FROM $table WHERE home_blog_id = %d", get_current_blog_id() ) );
}

/**
 * Return a row with numbers and arrays in place of texts.
 *
 * @param array $row The row.
 */
function read_job( array $row ): array {
	foreach ( NUMBERS as $name ) {
		$row[ $name ] = (int) $row[ $name ];
	}
	foreach ( JSON as $name ) {
		$value        = json_decode( $row[ $name ], true );
		$row[ $name ] = is_array( $value ) ? $value : array();
	}
	return $row;
}

/**
 * Return columns as they are stored.
 *
 * @param array $columns The values by name.
 */
function encode_columns( array $columns ): array {
	foreach ( JSON as $name ) {
		if ( isset( $columns[ $name ] ) ) {
			$columns[ $name ] = wp_json_encode( $columns[ $name ] );
		}
	}
	return $columns;
}
