<?php
/**
 * Marks of drafts whose article was rejected in the dashboard. They stay drafts.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const MAX_NOTE_CHARACTERS = 1000;

/**
 * Mark the draft of a job with a note, in place of an earlier one.
 *
 * @param array  $job  The job.
 * @param string $note Why it was rejected.
 */
function mark_job( array $job, string $note ): array {
	$note = mb_substr( trim( wp_strip_all_tags( $note ) ), 0, MAX_NOTE_CHARACTERS );
	in_site_of_job(
		$job,
		function () use ( $job, $note ) {
			if ( $job['post_id'] && get_post( $job['post_id'] ) ) {
				update_post_meta( $job['post_id'], MARK_META, wp_slash( $note ) );
			}
		}
	);
	return update_job( $job, array( 'note' => $note ) );
}

/**
 * Show the mark next to the title in the list of posts.
 *
 * @param array    $states The states of the post.
 * @param \WP_Post $post   The post.
 */
function show_mark( $states, $post ) {
	$note = (string) get_post_meta( $post->ID, MARK_META, true );
	if ( '' !== $note ) {
		/* translators: %s: why a person rejected the article. */
		$states['autowriter'] = esc_html( sprintf( __( 'Rejected in AutoWriter: %s', 'autowriter' ), $note ) );
	}
	return $states;
}
