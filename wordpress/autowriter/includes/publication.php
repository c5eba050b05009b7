<?php
/**
 * A publication: the body of `POST /jobs`, checked.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const MAX_IMAGES = 50;
const MAX_TERMS  = 100;

/**
 * Read the body of a request and return it with all its members, those that are left out with their defaults.
 *
 * @param string $body JSON.
 * @throws Failure If it is not valid. The message names the member.
 */
function parse_publication( string $body ): array {
	$sent = json_decode( $body, true, 32 );
	if ( ! is_array( $sent ) ) {
		throw new Failure( 'INVALID_REQUEST', 'The body is not a JSON object.' );
	}
	require_member( isset( $sent['article'] ) && is_array( $sent['article'] ), 'article', 'an object' );
	return array(
		'idempotency_key' => read_pattern( $sent, 'idempotency_key', '/^[0-9a-f]{64}$/', '64 hexadecimal digits in lower case' ),
		'job_id'          => read_text( $sent, 'job_id', 1, 191 ),
		'revision'        => read_number( $sent, 'revision' ),
		'blog_id'         => isset( $sent['blog_id'] ) ? read_number( $sent, 'blog_id' ) : null,
		'force'           => read_flag( $sent, 'force' ),
		'body_hash'       => hash_body( $sent ),
		'article'         => parse_article( $sent['article'] ),
	);
}

/**
 * Return a hash of what is published. `force` is left out: it says how to publish, not what.
 *
 * @param array $sent The body.
 */
function hash_body( array $sent ): string {
	unset( $sent['force'] );
	return hash( 'sha256', wp_json_encode( sort_members( $sent ) ) );
}

/**
 * Return a value with the members of all its objects in order, so that equal bodies have equal hashes.
 *
 * @param mixed $value The value.
 * @return mixed
 */
function sort_members( $value ) {
	if ( ! is_array( $value ) ) {
		return $value;
	}
	ksort( $value );
	return array_map( __NAMESPACE__ . '\sort_members', $value );
}

/**
 * Check an article.
 *
 * @param array $sent The member `article`.
 * @throws Failure If it is not valid.
 */
function parse_article( array $sent ): array {
	$seo = isset( $sent['seo'] ) ? $sent['seo'] : array();
	require_member( is_array( $seo ), 'article.seo', 'an object' );
	return array(
		'title'      => read_text( $sent, 'title', 1, 1000, 'article.' ),
		'slug'       => read_text( $sent, 'slug', 0, 200, 'article.' ),
		'content'    => read_text( $sent, 'content', 1, MAX_BODY_BYTES, 'article.' ),
		'excerpt'    => read_text( $sent, 'excerpt', 0, 10000, 'article.' ),
		'language'   => read_text( $sent, 'language', 0, 35, 'article.' ),
		'categories' => read_names( $sent, 'categories' ),
		'tags'       => read_names( $sent, 'tags' ),
		'seo'        => array(
			'title'         => read_text( $seo, 'title', 0, 1000, 'article.seo.' ),
			'description'   => read_text( $seo, 'description', 0, 2000, 'article.seo.' ),
			'focus_keyword' => read_text( $seo, 'focus_keyword', 0, 500, 'article.seo.' ),
		),
		'images'     => parse_images( isset( $sent['images'] ) ? $sent['images'] : array() ),
	);
}

/**
 * Check the images. Their data is checked when each is stored: one that cannot be read does not stop the article.
 *
 * @param mixed $sent The member `article.images`.
 * @throws Failure If they are not valid.
 */
function parse_images( $sent ): array {
	require_member( is_array( $sent ) && count( $sent ) <= MAX_IMAGES, 'article.images', 'a list of at most ' . MAX_IMAGES );
	$images   = array();
	$featured = 0;
	foreach ( array_values( $sent ) as $index => $each ) {
		$image     = parse_image( $each, "article.images[$index]." );
		$featured += (int) ( 'featured' === $image['type'] );
		require_member( ! isset( $images[ $image['key'] ] ), "article.images[$index].key", 'different for each image' );
		$images[ $image['key'] ] = $image;
	}
	require_member( $featured <= 1, 'article.images', 'a list with at most one featured image' );
	return array_values( $images );
}

/**
 * Check one image.
 *
 * @param mixed  $sent   The image.
 * @param string $within The name of what it is a member of.
 * @throws Failure If it is not valid.
 */
function parse_image( $sent, string $within ): array {
	require_member( is_array( $sent ), rtrim( $within, '.' ), 'an object' );
	return array(
		'key'      => read_pattern( $sent, 'key', '/^[A-Za-z0-9._:-]{1,128}$/', '1 to 128 letters, digits or . _ : -', $within ),
		'type'     => read_pattern( $sent, 'type', '/^(featured|inline)$/', 'featured or inline', $within ),
		'filename' => read_text( $sent, 'filename', 1, 255, $within ),
		'mime'     => read_text( $sent, 'mime', 1, 100, $within ),
		'alt'      => read_text( $sent, 'alt', 0, 2000, $within ),
		'data'     => read_text( $sent, 'data', 0, MAX_BODY_BYTES, $within ),
	);
}

/**
 * Return a text. One that may be empty may be left out.
 *
 * @param array  $sent   The object.
 * @param string $name   The member.
 * @param int    $least  The least number of bytes.
 * @param int    $most   The largest number of bytes.
 * @param string $within The name of what it is a member of.
 * @throws Failure If it is not valid.
 */
function read_text( array $sent, string $name, int $least, int $most, string $within = '' ): string {
	$value = isset( $sent[ $name ] ) ? $sent[ $name ] : '';
	$valid = is_string( $value ) && strlen( $value ) >= $least && strlen( $value ) <= $most;
	require_member( $valid, $within . $name, "a text of $least to $most bytes" );
	return $value;
}

/**
 * Return a text that matches a pattern.
 *
 * @param array  $sent        The object.
 * @param string $name        The member.
 * @param string $pattern     The regular expression.
 * @param string $description What it stands for.
 * @param string $within      The name of what it is a member of.
 * @throws Failure If it is not valid.
 */
function read_pattern( array $sent, string $name, string $pattern, string $description, string $within = '' ): string {
	$valid = isset( $sent[ $name ] ) && is_string( $sent[ $name ] ) && 1 === preg_match( $pattern . 'D', $sent[ $name ] );
	require_member( $valid, $within . $name, $description );
	return $sent[ $name ];
}

/**
 * Return a whole number from 1 on.
 *
 * @param array  $sent The object.
 * @param string $name The member.
 * @throws Failure If it is not valid.
 */
function read_number( array $sent, string $name ): int {
	$valid = isset( $sent[ $name ] ) && is_int( $sent[ $name ] ) && $sent[ $name ] >= 1 && $sent[ $name ] <= 4294967295;
	require_member( $valid, $name, 'a whole number from 1 on' );
	return $sent[ $name ];
}

/**
 * Return a boolean, false if it is left out.
 *
 * @param array  $sent The object.
 * @param string $name The member.
 * @throws Failure If it is not valid.
 */
function read_flag( array $sent, string $name ): bool {
	$value = isset( $sent[ $name ] ) ? $sent[ $name ] : false;
	require_member( is_bool( $value ), $name, 'true or false' );
	return $value;
}

/**
 * Return the names of categories or tags.
 *
 * @param array  $sent The article.
 * @param string $name The member.
 * @throws Failure If they are not valid.
 */
function read_names( array $sent, string $name ): array {
	$names = isset( $sent[ $name ] ) ? $sent[ $name ] : array();
	$valid = is_array( $names ) && count( $names ) <= MAX_TERMS;
	require_member( $valid && array_filter( $names, 'is_string' ) === $names, "article.$name", 'a list of at most ' . MAX_TERMS . ' names' );
	return array_values( array_unique( array_filter( array_map( 'trim', $names ), 'strlen' ) ) );
}

/**
 * Refuse the request unless a member is valid.
 *
 * @param bool   $valid       Whether it is.
 * @param string $name        Its name.
 * @param string $description What it must be.
 * @throws Failure If it is not.
 */
function require_member( bool $valid, string $name, string $description ) {
	if ( ! $valid ) {
		throw new Failure( 'INVALID_REQUEST', "`$name` must be $description." );
	}
}
