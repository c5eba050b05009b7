<?php
/**
 * The actions of the page of the plugin. Each checks the nonce of its form and the capability of the user.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Save the settings.
 */
function handle_save() {
	check_action( 'autowriter_save' );
	// phpcs:disable WordPress.Security.NonceVerification, WordPress.CSRF.NonceVerification -- check_action checked it.
	$url = isset( $_POST['dashboard'] ) ? esc_url_raw( wp_unslash( $_POST['dashboard'] ), array( 'http', 'https' ) ) : '';
	update_option( DASHBOARD_OPTION, untrailingslashit( $url ) );
	update_option( AUTHOR_OPTION, isset( $_POST['author'] ) ? absint( wp_unslash( $_POST['author'] ) ) : 0 );
	update_option( RATE_OPTION, isset( $_POST['rate'] ) ? max( 1, absint( wp_unslash( $_POST['rate'] ) ) ) : DEFAULT_RATE );
	// phpcs:enable
	redirect_with_notice( __( 'Settings saved.', 'autowriter' ) );
}

/**
 * Create a secret, or stop accepting the old one.
 */
function handle_secret() {
	check_action( 'autowriter_secret' );
	$change = isset( $_POST['change'] ) ? sanitize_key( wp_unslash( $_POST['change'] ) ) : ''; // phpcs:ignore WordPress.Security.NonceVerification, WordPress.CSRF.NonceVerification
	if ( 'retire' === $change ) {
		retire_old_secrets();
		redirect_with_notice( __( 'Only the new secret is valid now.', 'autowriter' ) );
	}
	try {
		set_transient( get_new_secret_name(), create_secret(), MINUTE_IN_SECONDS );
	} catch ( \LogicException $error ) {
		redirect_with_notice( __( 'Two secrets are valid already: finish the rotation first.', 'autowriter' ), false );
	}
	redirect_with_notice( __( 'A new secret is valid.', 'autowriter' ) );
}

/**
 * Send a signed notification of the kind `ping` to the dashboard, and show how it answered.
 */
function handle_test() {
	check_action( 'autowriter_test' );
	$problem = send_event(
		wp_json_encode(
			array(
				'event_id'        => wp_generate_uuid4(),
				'sequence'        => 0,
				'idempotency_key' => null,
				'job_id'          => null,
				'site_url'        => home_url( '/' ),
				'blog_id'         => get_current_blog_id(),
				'revision'        => 0,
				'kind'            => 'ping',
				'at'              => format_time( now() ),
				'detail'          => (object) array(),
			)
		)
	);
	if ( '' === $problem ) {
		redirect_with_notice( __( 'The dashboard received the test and accepted its signature.', 'autowriter' ) );
	}
	/* translators: %s: what went wrong. */
	redirect_with_notice( sprintf( __( 'The test failed: %s.', 'autowriter' ), $problem ), false );
}

/**
 * End the request unless it comes from a form of the page and from a user who may use it.
 *
 * @param string $action The action.
 */
function check_action( string $action ) {
	if ( ! current_user_can( CAPABILITY ) ) {
		wp_die( esc_html__( 'You are not allowed to do this.', 'autowriter' ), '', array( 'response' => 403 ) );
	}
	check_admin_referer( $action );
}
