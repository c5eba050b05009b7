<?php
/**
 * What a person has changed since the plugin wrote a post.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the hash of each part of a post that the plugin writes, as the post is now.
 *
 * @param int $post_id The post.
 */
function get_fingerprint( int $post_id ): array {
	$post  = get_post( $post_id );
	$parts = array(
		'title'      => $post->post_title,
		'content'    => $post->post_content,
		'excerpt'    => $post->post_excerpt,
		'slug'       => $post->post_name,
		'image'      => (int) get_post_thumbnail_id( $post_id ),
		'categories' => list_term_ids( $post_id, 'category' ),
		'tags'       => list_term_ids( $post_id, 'post_tag' ),
		'seo'        => read_seo( $post_id ),
	);
	return array_map(
		function ( $value ) {
			return hash( 'sha256', wp_json_encode( $value ) );
		},
		$parts
	);
}

/**
 * Return the names of the parts that a person has changed. None if the plugin did not finish writing.
 *
 * @param array $job The job.
 */
function list_edited_parts( array $job ): array {
	if ( ! $job['written'] ) {
		return array();
	}
	$edited = array_keys( array_diff_assoc( $job['written'], get_fingerprint( $job['post_id'] ) ) );
	// WordPress changes the slug itself when a post is published whose slug is taken.
	return may_set_slug( $job['post_id'] ) ? $edited : array_values( array_diff( $edited, array( 'slug' ) ) );
}

/**
 * Return whether the slug of a post may be set: not once its address may be known.
 *
 * @param int $post_id The post.
 */
function may_set_slug( int $post_id ): bool {
	return in_array( get_post_status( $post_id ), array( 'draft', 'pending', 'auto-draft' ), true );
}

/**
 * Return the ids of the terms of a post, in order.
 *
 * @param int    $post_id  The post.
 * @param string $taxonomy The taxonomy.
 */
function list_term_ids( int $post_id, string $taxonomy ): array {
	$ids = array_map( 'intval', wp_get_object_terms( $post_id, $taxonomy, array( 'fields' => 'ids' ) ) );
	sort( $ids );
	return $ids;
}
