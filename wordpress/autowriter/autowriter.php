<?php
/**
 * Plugin Name:       AutoWriter
 * Description:       Receives finished articles from a Retoma dashboard and saves them as drafts: text, images, categories, tags and SEO data. It never publishes anything.
 * Version:           1.0.0
 * Requires at least: 6.0
 * Requires PHP:      7.4
 * Author:            Retoma
 * License:           MIT
 * Text Domain:       autowriter
 * Domain Path:       /languages
 *
 * @package AutoWriter
 */

namespace AutoWriter;

if ( ! defined( 'ABSPATH' ) ) {
	exit;
}

const VERSION = '1.0.0';

// From the lowest layer to the highest: a file calls only the files above it.
require_once __DIR__ . '/includes/class-failure.php';
require_once __DIR__ . '/includes/clock.php';
require_once __DIR__ . '/includes/settings.php';
require_once __DIR__ . '/includes/locks.php';
require_once __DIR__ . '/includes/schema.php';
require_once __DIR__ . '/includes/secrets.php';
require_once __DIR__ . '/includes/signature.php';
require_once __DIR__ . '/includes/nonces.php';
require_once __DIR__ . '/includes/authentication.php';
require_once __DIR__ . '/includes/sites.php';
require_once __DIR__ . '/includes/publication.php';
require_once __DIR__ . '/includes/jobs-table.php';
require_once __DIR__ . '/includes/events.php';
require_once __DIR__ . '/includes/deliveries.php';
require_once __DIR__ . '/includes/media.php';
require_once __DIR__ . '/includes/content.php';
require_once __DIR__ . '/includes/terms.php';
require_once __DIR__ . '/includes/seo.php';
require_once __DIR__ . '/includes/edits.php';
require_once __DIR__ . '/includes/posts.php';
require_once __DIR__ . '/includes/publisher.php';
require_once __DIR__ . '/includes/job-status.php';
require_once __DIR__ . '/includes/marks.php';
require_once __DIR__ . '/includes/routes.php';
require_once __DIR__ . '/includes/lifecycle.php';

register_activation_hook( __FILE__, __NAMESPACE__ . '\activate' );
register_deactivation_hook( __FILE__, __NAMESPACE__ . '\deactivate' );
add_action( 'plugins_loaded', __NAMESPACE__ . '\upgrade_schema' );
add_action( 'plugins_loaded', __NAMESPACE__ . '\postpone_cron' );
add_action( 'init', __NAMESPACE__ . '\load_translations' );
add_action( 'init', __NAMESPACE__ . '\schedule_hourly_delivery' );
add_action( 'rest_api_init', __NAMESPACE__ . '\register_routes' );
add_filter( 'rest_post_dispatch', __NAMESPACE__ . '\add_response_headers', 10, 3 );
add_action( DELIVERY_HOOK, __NAMESPACE__ . '\deliver_due_events' );
add_filter( 'display_post_states', __NAMESPACE__ . '\show_mark', 10, 2 );

if ( is_admin() ) {
	require_once __DIR__ . '/includes/admin-page.php';
	require_once __DIR__ . '/includes/admin-settings.php';
	require_once __DIR__ . '/includes/admin-jobs.php';
	require_once __DIR__ . '/includes/admin-actions.php';
	add_action( 'admin_menu', __NAMESPACE__ . '\add_admin_page' );
	add_action( 'admin_post_autowriter_save', __NAMESPACE__ . '\handle_save' );
	add_action( 'admin_post_autowriter_secret', __NAMESPACE__ . '\handle_secret' );
	add_action( 'admin_post_autowriter_test', __NAMESPACE__ . '\handle_test' );
}
