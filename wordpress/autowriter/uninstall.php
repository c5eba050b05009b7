<?php
/**
 * Runs when an administrator deletes the plugin.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

if ( ! defined( 'WP_UNINSTALL_PLUGIN' ) ) {
	exit;
}

require_once __DIR__ . '/includes/settings.php';
require_once __DIR__ . '/includes/locks.php';
require_once __DIR__ . '/includes/schema.php';
require_once __DIR__ . '/includes/sites.php';
require_once __DIR__ . '/includes/deliveries.php';
require_once __DIR__ . '/includes/lifecycle.php';

remove_everything();
