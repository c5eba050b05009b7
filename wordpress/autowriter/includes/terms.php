<?php
/**
 * Categories and tags.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the ids of terms by their names, and create those that are missing.
 *
 * @param array  $names    The names.
 * @param string $taxonomy `category` or `post_tag`.
 * @throws Failure If one cannot be created.
 */
function resolve_terms( array $names, string $taxonomy ): array {
	$ids = array();
	foreach ( $names as $name ) {
		$found = find_term( $name, $taxonomy );
		$ids[] = $found ? $found : create_term( $name, $taxonomy );
	}
	return array_values( array_unique( $ids ) );
}

/**
 * Return the id of the term with this name, or 0.
 *
 * @param string $name     The name.
 * @param string $taxonomy The taxonomy.
 */
function find_term( string $name, string $taxonomy ): int {
	$found = get_terms(
		array(
			'taxonomy'   => $taxonomy,
			'name'       => $name,
			'hide_empty' => false,
			'number'     => 1,
			'orderby'    => 'term_id',
			'fields'     => 'ids',
		)
	);
	return is_array( $found ) && $found ? (int) $found[0] : 0;
}

/**
 * Create a term. Under a lock: WordPress itself would create the same one twice for two articles at once.
 *
 * @param string $name     The name.
 * @param string $taxonomy The taxonomy.
 * @throws Failure If it cannot be created.
 */
function create_term( string $name, string $taxonomy ): int {
	return with_lock(
		'terms ' . get_current_blog_id(),
		10,
		function () use ( $name, $taxonomy ) {
			wp_cache_delete( 'last_changed', 'terms' );
			$found = find_term( $name, $taxonomy );
			return $found ? $found : insert_term( $name, $taxonomy );
		},
		function () use ( $name ) {
			throw new Failure( 'CATEGORY_CREATE_FAIL', "The term '$name' could not be created: others are being created." );
		}
	);
}

/**
 * Insert a term.
 *
 * @param string $name     The name.
 * @param string $taxonomy The taxonomy.
 * @throws Failure If WordPress refuses it.
 */
function insert_term( string $name, string $taxonomy ): int {
	$made = wp_insert_term( wp_slash( $name ), $taxonomy );
	if ( ! is_wp_error( $made ) ) {
		return (int) $made['term_id'];
	}
	// Another name with the same slug, such as one that differs in its accents, is the same term to WordPress.
	if ( 'term_exists' === $made->get_error_code() ) {
		return (int) $made->get_error_data( 'term_exists' );
	}
	$what = 'category' === $taxonomy ? 'category' : 'tag';
	throw new Failure( 'CATEGORY_CREATE_FAIL', "The $what '$name' could not be created: {$made->get_error_message()}" );
}
