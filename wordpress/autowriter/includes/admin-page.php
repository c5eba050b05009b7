<?php
/**
 * The page of the plugin in wp-admin.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const PAGE       = 'autowriter';
const CAPABILITY = 'manage_options';

/**
 * Add the page to the menu.
 */
function add_admin_page() {
	add_menu_page(
		__( 'AutoWriter', 'autowriter' ),
		__( 'AutoWriter', 'autowriter' ),
		CAPABILITY,
		PAGE,
		__NAMESPACE__ . '\show_page',
		'dashicons-edit-page'
	);
}

/**
 * Show the page: what the last action did, the connection, and the jobs.
 */
function show_page() {
	if ( ! current_user_can( CAPABILITY ) ) {
		return;
	}
	echo '<div class="wrap"><h1>' . esc_html__( 'AutoWriter', 'autowriter' ) . '</h1>';
	show_notice();
	show_new_secret();
	show_settings_form();
	show_secrets();
	show_connection_test();
	show_jobs();
	echo '</div>';
}

/**
 * Show what the last action did. Only texts of this plugin are shown, not what the address says.
 */
function show_notice() {
	$notice = get_transient( get_notice_name() );
	if ( is_array( $notice ) ) {
		delete_transient( get_notice_name() );
		printf(
			'<div class="notice notice-%s"><p>%s</p></div>',
			esc_attr( $notice['success'] ? 'success' : 'error' ),
			esc_html( $notice['text'] )
		);
	}
}

/**
 * Keep a text for the next view of the page, and go there.
 *
 * @param string $text    The text.
 * @param bool   $success Whether the action succeeded.
 */
function redirect_with_notice( string $text, bool $success = true ) {
	$notice = array(
		'text'    => $text,
		'success' => $success,
	);
	set_transient( get_notice_name(), $notice, MINUTE_IN_SECONDS );
	wp_safe_redirect( admin_url( 'admin.php?page=' . PAGE ) );
	exit;
}

/**
 * Return the name of the transient for the texts of the current user.
 */
function get_notice_name(): string {
	return 'autowriter_notice_' . get_current_user_id();
}

/**
 * Return the name of the transient for the secret that the current user just created.
 */
function get_new_secret_name(): string {
	return 'autowriter_new_secret_' . get_current_user_id();
}
