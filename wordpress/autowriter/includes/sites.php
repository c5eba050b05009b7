<?php
/**
 * The sites of a network.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Return the site to publish to. The secret of the main site opens all sites of its network, any other only its own.
 *
 * @param int|null $blog_id The requested site, or null for the one that received the request.
 * @throws Failure If it does not exist or may not be entered.
 */
function choose_site( $blog_id ): int {
	$current = get_current_blog_id();
	if ( null === $blog_id || $current === $blog_id ) {
		return $current;
	}
	$site = is_multisite() ? get_site( $blog_id ) : null;
	if ( ! $site || get_current_network_id() !== (int) $site->network_id || is_closed( $site ) ) {
		throw new Failure( 'BLOG_SWITCH_FAIL', "There is no site $blog_id here." );
	}
	if ( ! is_main_site() ) {
		throw new Failure(
			'BLOG_SWITCH_FAIL',
			"The secret of site $current does not open site $blog_id: use its own, or that of the main site.",
			array( 'status' => 403 )
		);
	}
	return $blog_id;
}

/**
 * Return whether a site is archived, deleted or marked as spam.
 *
 * @param \WP_Site $site The site.
 */
function is_closed( \WP_Site $site ): bool {
	return $site->archived || $site->deleted || $site->spam;
}

/**
 * Run a function in a site, and return to the current one whatever happens.
 *
 * @param int      $blog_id The site.
 * @param callable $work    The function.
 * @return mixed What it returns.
 */
function in_site( int $blog_id, callable $work ) {
	if ( get_current_blog_id() === $blog_id ) {
		return $work();
	}
	switch_to_blog( $blog_id );
	try {
		return $work();
	} finally {
		restore_current_blog();
	}
}

/**
 * Run a function in the site of a job's post. Null if that site was deleted: it has no tables any more.
 *
 * @param array    $job  The job.
 * @param callable $work The function.
 * @return mixed What it returns.
 */
function in_site_of_job( array $job, callable $work ) {
	$exists = ! is_multisite() || get_site( $job['blog_id'] );
	return $exists ? in_site( $job['blog_id'], $work ) : null;
}

/**
 * Return the sites that the secret of this site opens: arrays with `blog_id`, `name` and `url`.
 */
function list_open_sites(): array {
	if ( ! is_multisite() || ! is_main_site() ) {
		return array( describe_site( get_current_blog_id() ) );
	}
	$found = get_sites(
		array(
			'network_id' => get_current_network_id(),
			'archived'   => 0,
			'deleted'    => 0,
			'spam'       => 0,
			'number'     => 1000,
			'fields'     => 'ids',
		)
	);
	return array_map( __NAMESPACE__ . '\describe_site', $found );
}

/**
 * Return the id, the name and the address of a site.
 *
 * @param int $blog_id The site.
 */
function describe_site( int $blog_id ): array {
	return in_site(
		$blog_id,
		function () use ( $blog_id ) {
			return array(
				'blog_id' => $blog_id,
				'name'    => wp_specialchars_decode( get_bloginfo( 'name' ), ENT_QUOTES ),
				'url'     => home_url( '/' ),
			);
		}
	);
}
