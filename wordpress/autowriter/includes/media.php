<?php
/**
 * The images of an article in the media library.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const IMAGE_TYPES = array(
	'image/jpeg' => 'jpg',
	'image/png'  => 'png',
	'image/gif'  => 'gif',
	'image/webp' => 'webp',
);

/**
 * Return the attachment of an image: the one that was stored under its key before, or a new one. What a process that
 * died left out of it is added.
 *
 * @param array $image   The image.
 * @param int   $post_id The post to attach it to.
 * @throws Failure If it cannot be stored.
 */
function store_image( array $image, int $post_id ): int {
	// These files are loaded only in wp-admin.
	require_once ABSPATH . 'wp-admin/includes/image.php';
	$id = find_attachment( $image['key'], $post_id );
	if ( ! $id || ! is_file( (string) get_attached_file( $id ) ) ) {
		$stored = write_image_file( $image );
		$id     = $id ? $id : insert_attachment( $image, $stored, $post_id );
		update_attached_file( $id, $stored['file'] );
		delete_post_meta( $id, '_wp_attachment_metadata' );
	}
	if ( ! wp_get_attachment_metadata( $id, true ) ) {
		wp_update_attachment_metadata( $id, wp_generate_attachment_metadata( $id, get_attached_file( $id ) ) );
	}
	update_post_meta( $id, IMAGE_KEY_META, $image['key'] );
	update_post_meta( $id, '_wp_attachment_image_alt', wp_slash( wp_strip_all_tags( $image['alt'] ) ) );
	return $id;
}

/**
 * Return the attachment of a key, or 0. It is one of this post, which its guid tells even if the process died right
 * after it inserted it, or one of an earlier draft.
 *
 * @param string $key     The key of the image.
 * @param int    $post_id The post.
 */
function find_attachment( string $key, int $post_id ): int {
	global $wpdb;
	$begun = (int) $wpdb->get_var(
		$wpdb->prepare(
			"SELECT ID FROM $wpdb->posts WHERE post_parent = %d AND post_type = 'attachment' AND guid = %s",
			$post_id,
			build_image_guid( $key )
		)
	);
	if ( $begun ) {
		return $begun;
	}
	$found = get_posts(
		array(
			'post_type'   => 'attachment',
			'post_status' => 'inherit',
			'numberposts' => 1,
			'fields'      => 'ids',
			'meta_key'    => IMAGE_KEY_META,
			'meta_value'  => $key,
		)
	);
	return $found ? $found[0] : 0;
}

/**
 * Return the guid of the attachment of an image.
 *
 * @param string $key The key of the image.
 */
function build_image_guid( string $key ): string {
	return "urn:autowriter-image:$key";
}

/**
 * Insert the attachment of a file.
 *
 * @param array $image   The image.
 * @param array $stored  Its `file` and `type`.
 * @param int   $post_id The post to attach it to.
 * @throws Failure If WordPress refuses it.
 */
function insert_attachment( array $image, array $stored, int $post_id ): int {
	$id = wp_insert_attachment(
		wp_slash(
			array(
				'guid'           => build_image_guid( $image['key'] ),
				'post_mime_type' => $stored['type'],
				'post_title'     => wp_strip_all_tags( $image['alt'] ? $image['alt'] : pathinfo( $stored['file'], PATHINFO_FILENAME ) ),
				'post_status'    => 'inherit',
			)
		),
		false,
		$post_id,
		true
	);
	if ( is_wp_error( $id ) ) {
		wp_delete_file( $stored['file'] );
		throw new Failure( 'MEDIA_UPLOAD_FAIL', $id->get_error_message() );
	}
	return $id;
}

/**
 * Write an image to the folder for uploads, and return its `file` and `type`.
 *
 * @param array $image The image.
 * @throws Failure If it is not an image of an accepted type, or cannot be written.
 */
function write_image_file( array $image ): array {
	$bytes = base64_decode( $image['data'], true );
	$type  = $bytes ? ( new \finfo( FILEINFO_MIME_TYPE ) )->buffer( $bytes ) : '';
	if ( ! isset( IMAGE_TYPES[ $type ] ) || $type !== $image['mime'] ) {
		throw new Failure( 'MEDIA_UPLOAD_FAIL', "The data of image {$image['key']} is not {$image['mime']}, or is not accepted." );
	}
	$stem   = sanitize_file_name( pathinfo( $image['filename'], PATHINFO_FILENAME ) );
	$stored = wp_upload_bits( ( $stem ? $stem : 'image' ) . '.' . IMAGE_TYPES[ $type ], null, $bytes );
	if ( ! empty( $stored['error'] ) ) {
		throw new Failure( 'MEDIA_UPLOAD_FAIL', "Image {$image['key']} could not be written: {$stored['error']}" );
	}
	check_image_file( $stored['file'], $image['key'] );
	return array(
		'file' => $stored['file'],
		'type' => $type,
	);
}

/**
 * Delete a file that begins like an image and cannot be decoded.
 *
 * @param string $file The file.
 * @param string $key  The key of the image.
 * @throws Failure If it cannot be decoded.
 */
function check_image_file( string $file, string $key ) {
	$editor = wp_get_image_editor( $file );
	if ( is_wp_error( $editor ) && 'image_no_editor' !== $editor->get_error_code() ) {
		wp_delete_file( $file );
		throw new Failure( 'MEDIA_UPLOAD_FAIL', "Image $key cannot be decoded: {$editor->get_error_message()}" );
	}
}
