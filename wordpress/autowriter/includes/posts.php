<?php
/**
 * The post of an article.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return whether the post of a job is deleted or in the trash. A job without a post yet has lost none.
 *
 * @param array $job The job.
 */
function is_post_gone( array $job ): bool {
	if ( ! $job['post_id'] ) {
		return false;
	}
	$status = get_post_status( $job['post_id'] );
	return false === $status || 'trash' === $status;
}

/**
 * Return the post that a job has begun, or 0.
 *
 * The guid tells: it is inserted in one statement with the post, so no crash leaves a post that is not found again.
 *
 * @param array $job The job.
 */
function find_begun_post( array $job ): int {
	global $wpdb;
	return (int) $wpdb->get_var( $wpdb->prepare( "SELECT ID FROM $wpdb->posts WHERE guid = %s AND post_type = 'post'", build_guid( $job ) ) );
}

/**
 * Insert the draft of an article, with its text already.
 *
 * @param array $job     The job.
 * @param array $article The article.
 * @throws Failure If WordPress refuses it.
 */
function insert_draft( array $job, array $article ): int {
	$fields = array(
		'guid'         => build_guid( $job ),
		'post_status'  => 'draft',
		'post_author'  => get_author_id(),
		'post_title'   => wp_strip_all_tags( $article['title'] ),
		'post_content' => insert_figures( sanitize_content( $article['content'] ), array() ),
	);
	return keep_status(
		array( 'guid' => $fields['guid'] ),
		function () use ( $fields ) {
			return check_post_id( wp_insert_post( wp_slash( $fields ), true ) );
		}
	);
}

/**
 * Write an article to its post. The status of the post stays as it is.
 *
 * @param int   $post_id     The post.
 * @param array $article     The article.
 * @param array $attachments The ids of attachments by the keys of their images.
 * @param array $terms       The ids of the terms by taxonomy.
 * @throws Failure If WordPress refuses it.
 */
function write_post( int $post_id, array $article, array $attachments, array $terms ) {
	// A person may have published it since it was read: WordPress must see its status and slug of now.
	clean_post_cache( $post_id );
	$fields = array(
		'ID'            => $post_id,
		'post_title'    => wp_strip_all_tags( $article['title'] ),
		'post_content'  => insert_figures( sanitize_content( $article['content'] ), $attachments ),
		'post_excerpt'  => wp_kses_post( $article['excerpt'] ),
		'post_category' => $terms['category'],
	);
	if ( may_set_slug( $post_id ) && '' !== $article['slug'] ) {
		$fields['post_name'] = sanitize_title( $article['slug'] );
	}
	keep_status(
		array( 'ID' => $post_id ),
		function () use ( $fields ) {
			check_post_id( wp_update_post( wp_slash( $fields ), true ) );
		}
	);
	wp_set_object_terms( $post_id, $terms['post_tag'], 'post_tag' );
	write_featured_image( $post_id, $article['images'], $attachments );
	if ( '' !== $article['language'] ) {
		update_post_meta( $post_id, LANGUAGE_META, wp_slash( $article['language'] ) );
	}
}

/**
 * Set the featured image. If it could not be stored, the earlier one stays; if the article has none, it is removed.
 *
 * @param int   $post_id     The post.
 * @param array $images      The images of the article.
 * @param array $attachments The ids of attachments by the keys of their images.
 */
function write_featured_image( int $post_id, array $images, array $attachments ) {
	$keys = wp_list_pluck( wp_list_filter( $images, array( 'type' => 'featured' ) ), 'key' );
	$key  = reset( $keys );
	if ( false === $key ) {
		delete_post_thumbnail( $post_id );
	} elseif ( isset( $attachments[ $key ] ) ) {
		set_post_thumbnail( $post_id, $attachments[ $key ] );
	}
}

/**
 * Run a function that writes a post, and let neither WordPress nor another plugin give it another status than it has in
 * the database. A new post is a draft.
 *
 * @param array    $post The field and value that tell which post it is.
 * @param callable $work The function.
 * @return mixed What it returns.
 */
function keep_status( array $post, callable $work ) {
	$keep = function ( array $data, array $fields ) use ( $post ) {
		if ( array_intersect_assoc( $post, $fields ) !== $post ) {
			return $data;
		}
		$status = empty( $fields['ID'] ) ? 'draft' : read_status( $fields['ID'] );
		return array( 'post_status' => $status ) + $data;
	};
	add_filter( 'wp_insert_post_data', $keep, PHP_INT_MAX, 2 );
	try {
		return $work();
	} finally {
		remove_filter( 'wp_insert_post_data', $keep, PHP_INT_MAX );
	}
}

/**
 * Return the status of a post in the database, not in the cache of this request.
 *
 * @param int $post_id The post.
 */
function read_status( int $post_id ): string {
	global $wpdb;
	return (string) $wpdb->get_var( $wpdb->prepare( "SELECT post_status FROM $wpdb->posts WHERE ID = %d", $post_id ) );
}

/**
 * Run a function as the author of the drafts, so revisions and other plugins see a user.
 *
 * @param callable $work The function.
 * @return mixed What it returns.
 */
function as_author( callable $work ) {
	$before = get_current_user_id();
	wp_set_current_user( get_author_id() );
	try {
		return $work();
	} finally {
		wp_set_current_user( $before );
	}
}

/**
 * Return the guid of the current draft of a job.
 *
 * @param array $job The job.
 */
function build_guid( array $job ): string {
	return "urn:autowriter:{$job['idempotency_key']}:{$job['drafts']}";
}

/**
 * Return the id of a written post.
 *
 * @param int|\WP_Error $result What WordPress returned.
 * @throws Failure If it is an error.
 */
function check_post_id( $result ): int {
	if ( is_wp_error( $result ) ) {
		throw new Failure( 'PUBLISH_FAILED', "The post could not be written: {$result->get_error_message()}" );
	}
	return $result;
}
