<?php
/**
 * The status of a job, for a dashboard that missed notifications.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the status of a job with all its events. `steps` has the time at which each step of the revision began.
 *
 * @param array $job The job.
 */
function describe_job( array $job ): array {
	return array(
		'job_id'      => $job['job_id'],
		'post_id'     => $job['post_id'] ? $job['post_id'] : null,
		'post_status' => get_job_post_status( $job ),
		'status'      => $job['status'],
		'revision'    => $job['revision'],
		'blog_id'     => $job['blog_id'],
		'steps'       => (object) $job['steps'],
		'edited'      => is_post_edited( $job ),
		'note'        => '' === $job['note'] ? null : $job['note'],
		'error'       => $job['error'] ? $job['error'] : null,
		'events'      => list_events( $job['idempotency_key'] ),
	);
}

/**
 * Return the status of the post of a job as WordPress names it, or null if there is no such post.
 *
 * @param array $job The job.
 */
function get_job_post_status( array $job ) {
	$status = in_site_of_job(
		$job,
		function () use ( $job ) {
			return $job['post_id'] ? get_post_status( $job['post_id'] ) : false;
		}
	);
	return $status ? $status : null;
}

/**
 * Return whether a person has edited the post of a job.
 *
 * @param array $job The job.
 */
function is_post_edited( array $job ): bool {
	return (bool) in_site_of_job(
		$job,
		function () use ( $job ) {
			return $job['post_id'] && ! is_post_gone( $job ) && list_edited_parts( $job );
		}
	);
}
