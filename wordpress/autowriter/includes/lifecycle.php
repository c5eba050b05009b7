<?php
/**
 * Activation, deactivation and removal.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Create the tables. Everything else has defaults, so a site that is added to a network later needs nothing.
 */
function activate() {
	upgrade_schema();
}

/**
 * Stop the deliveries. Jobs, events and settings stay until the plugin is deleted.
 *
 * @param bool $network_wide Whether all sites of a network stop, or only the current one.
 */
function deactivate( $network_wide ) {
	$stop = function () {
		wp_unschedule_hook( DELIVERY_HOOK );
	};
	if ( $network_wide ) {
		in_each_site( $stop );
	} else {
		$stop();
	}
}

/**
 * Remove everything that the plugin stored, in all sites. Posts, images, terms and SEO data stay: they are content.
 */
function remove_everything() {
	in_each_site(
		function () {
			wp_unschedule_hook( DELIVERY_HOOK );
			array_map( 'delete_option', OPTIONS );
			array_map( 'delete_post_meta_by_key', POST_META );
			delete_transients();
		}
	);
	drop_tables();
}

/**
 * Delete the texts that wait for the next view of the page of the plugin.
 */
function delete_transients() {
	global $wpdb;
	foreach ( array( '_transient_autowriter_', '_transient_timeout_autowriter_' ) as $prefix ) {
		$wpdb->query( $wpdb->prepare( "DELETE FROM $wpdb->options WHERE option_name LIKE %s", $wpdb->esc_like( $prefix ) . '%' ) );
	}
}

/**
 * Run a function in each site of the installation.
 *
 * @param callable $work The function.
 */
function in_each_site( callable $work ) {
	$sites = is_multisite() ? get_sites(
		array(
			'number' => 0,
			'fields' => 'ids',
		)
	) : array( get_current_blog_id() );
	foreach ( $sites as $blog_id ) {
		in_site( $blog_id, $work );
	}
}

/**
 * Load the translations that come with the plugin.
 */
function load_translations() {
	load_plugin_textdomain( 'autowriter', false, dirname( plugin_basename( __DIR__ ) ) . '/languages' );
}
