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
 * Return the attachment of an image: the one that was stored under its key before, or a new one.
 *
 * @param array $image   The image.
 * @param int   $post_id The post to attach it to.
 * @throws Failure If it cannot be stored.
 */
function store_image( array $image, int $post_id ): int {
	$id = find_attachment( $image['key'] );
	if ( ! $id ) {
		$id = create_attachment( $image, $post_id );
	}
	update_post_meta( $id, '_wp_attachment_image_alt', wp_slash( wp_strip_all_tags( $image['alt'] ) ) );
	return $id;
}

/**
 * Return the attachment that was stored under a key, or 0 if there is none or its file is gone.
 *
 * @param string $key The key of the image.
 */
function find_attachment( string $key ): int {
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
	return $found && is_file( (string) get_attached_file( $found[0] ) ) ? $found[0] : 0;
}

/**
 * Store an image as a new attachment.
 *
 * @param array $image   The image.
 * @param int   $post_id The post to attach it to.
 * @throws Failure If it cannot be stored.
 */
function create_attachment( array $image, int $post_id ): int {
	// These files are loaded only in wp-admin.
	require_once ABSPATH . 'wp-admin/includes/image.php';
	$stored = write_image_file( $image );
	$id     = wp_insert_attachment(
		wp_slash(
			array(
				'guid'           => $stored['url'],
				'post_mime_type' => $stored['type'],
				'post_title'     => wp_strip_all_tags( $image['alt'] ? $image['alt'] : pathinfo( $stored['file'], PATHINFO_FILENAME ) ),
				'post_status'    => 'inherit',
				'meta_input'     => array( IMAGE_KEY_META => $image['key'] ),
			)
		),
		$stored['file'],
		$post_id,
		true
	);
	if ( is_wp_error( $id ) ) {
		wp_delete_file( $stored['file'] );
		throw new Failure( 'MEDIA_UPLOAD_FAIL', $id->get_error_message() );
	}
	wp_update_attachment_metadata( $id, wp_generate_attachment_metadata( $id, $stored['file'] ) );
	return $id;
}

/**
 * Write an image to the folder for uploads, and return its `file`, `url` and `type`.
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
	return array( 'type' => $type ) + $stored;
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
