<?php
/**
 * SEO data, in the post meta that Yoast SEO and Rank Math read. It is there when one of them is installed later, too.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const SEO_META = array(
	'title'         => array( '_yoast_wpseo_title', 'rank_math_title' ),
	'description'   => array( '_yoast_wpseo_metadesc', 'rank_math_description' ),
	'focus_keyword' => array( '_yoast_wpseo_focuskw', 'rank_math_focus_keyword' ),
);

/**
 * Write the SEO data of a post, and return the names of the meta that it has. An empty value removes its meta.
 *
 * Not by the functions of those plugins: after switch_to_blog, those of another site are not loaded.
 *
 * @param int   $post_id The post.
 * @param array $seo     The values.
 * @throws Failure If it cannot be written.
 */
function apply_seo( int $post_id, array $seo ): array {
	$written = array();
	foreach ( SEO_META as $name => $keys ) {
		$value = trim( wp_strip_all_tags( $seo[ $name ] ) );
		foreach ( $keys as $key ) {
			write_meta( $post_id, $key, $value );
			if ( '' !== $value ) {
				$written[] = $key;
			}
		}
	}
	return $written;
}

/**
 * Write one meta, and read it back: update_post_meta returns false also for a value that is there already.
 *
 * @param int    $post_id The post.
 * @param string $key     The name of the meta.
 * @param string $value   Its value.
 * @throws Failure If it is not written.
 */
function write_meta( int $post_id, string $key, string $value ) {
	if ( '' === $value ) {
		delete_post_meta( $post_id, $key );
	} else {
		update_post_meta( $post_id, $key, wp_slash( $value ) );
	}
	if ( (string) get_post_meta( $post_id, $key, true ) !== $value ) {
		throw new Failure( 'SEO_APPLY_FAIL', "The meta $key of post $post_id could not be written." );
	}
}

/**
 * Return the SEO data that a post has now.
 *
 * @param int $post_id The post.
 */
function read_seo( int $post_id ): array {
	$found = array();
	foreach ( array_merge( ...array_values( SEO_META ) ) as $key ) {
		$found[ $key ] = (string) get_post_meta( $post_id, $key, true );
	}
	return $found;
}
