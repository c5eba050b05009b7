<?php
/**
 * The settings, secrets and connection test on the page of the plugin.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Show the form with the settings.
 */
function show_settings_form() {
	?>
	<h2><?php esc_html_e( 'Settings', 'autowriter' ); ?></h2>
	<form method="post" action="<?php echo esc_url( admin_url( 'admin-post.php' ) ); ?>">
		<input type="hidden" name="action" value="autowriter_save" />
		<?php wp_nonce_field( 'autowriter_save' ); ?>
		<table class="form-table" role="presentation">
			<tr>
				<th scope="row"><label for="autowriter-dashboard"><?php esc_html_e( 'Dashboard address', 'autowriter' ); ?></label></th>
				<td>
					<input type="url" class="regular-text" id="autowriter-dashboard" name="dashboard" placeholder="https://retoma.example.com"
						value="<?php echo esc_attr( get_dashboard_url() ); ?>" />
					<p class="description"><?php esc_html_e( 'AutoWriter notifies this address of what happens to each article.', 'autowriter' ); ?></p>
				</td>
			</tr>
			<tr>
				<th scope="row"><label for="autowriter-author"><?php esc_html_e( 'Author of the drafts', 'autowriter' ); ?></label></th>
				<td>
					<?php
					wp_dropdown_users(
						array(
							'id'         => 'autowriter-author',
							'name'       => 'author',
							'selected'   => get_author_id(),
							'capability' => 'edit_posts',
						)
					);
					?>
				</td>
			</tr>
			<tr>
				<th scope="row"><label for="autowriter-rate"><?php esc_html_e( 'Requests per minute', 'autowriter' ); ?></label></th>
				<td>
					<input type="number" min="1" class="small-text" id="autowriter-rate" name="rate"
						value="<?php echo esc_attr( (string) get_requests_per_minute() ); ?>" />
				</td>
			</tr>
		</table>
		<?php submit_button( __( 'Save settings', 'autowriter' ) ); ?>
	</form>
	<?php
}

/**
 * Show a secret that was just created. It cannot be shown again.
 */
function show_new_secret() {
	$secret = get_transient( get_new_secret_name() );
	if ( is_string( $secret ) ) {
		delete_transient( get_new_secret_name() );
		?>
		<div class="notice notice-warning">
			<p><?php esc_html_e( 'Copy this secret to the dashboard now. It will not be shown again.', 'autowriter' ); ?></p>
			<p><code id="autowriter-new-secret"><?php echo esc_html( $secret ); ?></code></p>
		</div>
		<?php
	}
}

/**
 * Show which secrets are valid, without the secrets, and the buttons that fit.
 */
function show_secrets() {
	$secrets = list_secrets();
	echo '<h2>' . esc_html__( 'Secrets', 'autowriter' ) . '</h2>';
	if ( ! $secrets ) {
		echo '<p>' . esc_html__( 'This site has no secret yet, so it accepts no articles.', 'autowriter' ) . '</p>';
		show_secret_button( 'create', __( 'Generate secret', 'autowriter' ), 'primary' );
		return;
	}
	echo '<ul>';
	foreach ( $secrets as $each ) {
		/* translators: 1: key id, 2: date. */
		$text = sprintf( __( 'Key %1$s, created on %2$s', 'autowriter' ), $each['key_id'], wp_date( get_option( 'date_format' ), $each['created_at'] ) );
		echo '<li>' . esc_html( $text ) . '</li>';
	}
	echo '</ul>';
	if ( 1 === count( $secrets ) ) {
		show_secret_button( 'create', __( 'Rotate secret', 'autowriter' ), 'secondary' );
	} else {
		echo '<p>' . esc_html__( 'Both secrets are valid. Finish the rotation once the dashboard uses the new one.', 'autowriter' ) . '</p>';
		show_secret_button( 'retire', __( 'Finish rotation', 'autowriter' ), 'primary' );
	}
}

/**
 * Show a button that changes the secrets.
 *
 * @param string $change `create` or `retire`.
 * @param string $label  The text of the button.
 * @param string $style  How prominent it is.
 */
function show_secret_button( string $change, string $label, string $style ) {
	?>
	<form method="post" action="<?php echo esc_url( admin_url( 'admin-post.php' ) ); ?>">
		<input type="hidden" name="action" value="autowriter_secret" />
		<input type="hidden" name="change" value="<?php echo esc_attr( $change ); ?>" />
		<?php
		wp_nonce_field( 'autowriter_secret' );
		submit_button( $label, $style, 'submit', false );
		?>
	</form>
	<?php
}

/**
 * Show the button that tests the connection to the dashboard.
 */
function show_connection_test() {
	?>
	<h2><?php esc_html_e( 'Connection', 'autowriter' ); ?></h2>
	<form method="post" action="<?php echo esc_url( admin_url( 'admin-post.php' ) ); ?>">
		<input type="hidden" name="action" value="autowriter_test" />
		<?php
		wp_nonce_field( 'autowriter_test' );
		submit_button( __( 'Test connection', 'autowriter' ), 'secondary', 'submit', false );
		?>
	</form>
	<?php
}
