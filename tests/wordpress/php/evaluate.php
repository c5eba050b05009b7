<?php
// Run the PHP code of a test within WordPress, and print what it returns as JSON. `values` are its variables.
function tests_evaluate( $request ) {
	require_once ABSPATH . 'wp-admin/includes/admin.php';
	$run = function () use ( $request ) {
		global $wpdb;
		extract( $request['values'] );
		return eval( $request['code'] );
	};
	ob_start();
	$returned = $run();
	ob_end_clean();
	echo "\n", wp_json_encode( array( 'returned' => $returned ) );
}
