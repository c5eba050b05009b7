<?php
/**
 * The HTML of an article.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const PLACEHOLDER = '/<!--\s*autowriter:image\s+([A-Za-z0-9._:-]+)\s*-->/';

/**
 * Return the HTML that posts may have, without scripts, and with its placeholders.
 *
 * @param string $html The content as it was sent.
 */
function sanitize_content( string $html ): string {
	// wp_kses_post would remove the tags and leave the code as text.
	$html = preg_replace( '#<(script|style)\b[^>]*>.*?(</\1\s*>|$)#si', '', $html );
	return wp_kses_post( (string) $html );
}

/**
 * Replace each placeholder by the figure of its image, or remove it if there is no such image.
 *
 * @param string $html        The sanitized content.
 * @param array  $attachments The ids of attachments by the keys of their images.
 */
function insert_figures( string $html, array $attachments ): string {
	return (string) preg_replace_callback(
		PLACEHOLDER,
		function ( array $found ) use ( $attachments ) {
			return isset( $attachments[ $found[1] ] ) ? build_figure( $attachments[ $found[1] ] ) : '';
		},
		$html
	);
}

/**
 * Return the keys of the placeholders in some content.
 *
 * @param string $html The content.
 */
function list_placeholders( string $html ): array {
	preg_match_all( PLACEHOLDER, $html, $found );
	return array_unique( $found[1] );
}

/**
 * Return the figure of an attachment. By the class of the image, WordPress adds its smaller sizes when it shows the post.
 *
 * @param int $id The attachment.
 */
function build_figure( int $id ): string {
	list( $url, $width, $height ) = wp_get_attachment_image_src( $id, 'full' );
	return sprintf(
		'<figure class="wp-block-image size-full"><img src="%s" alt="%s" width="%d" height="%d" class="wp-image-%d" /></figure>',
		esc_url( $url ),
		esc_attr( (string) get_post_meta( $id, '_wp_attachment_image_alt', true ) ),
		$width,
		$height,
		$id
	);
}
