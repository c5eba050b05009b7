<?php
// Loaded by every request to a WordPress of the tests.
require_once __DIR__ . '/tests/evaluate.php';
if ( isset( $_SERVER['HTTP_X_TEST_RUN'] ) ) {
	add_action(
		'wp_loaded',
		function () {
			tests_evaluate( json_decode( file_get_contents( 'php://input' ), true ) );
			exit;
		}
	);
}

// Add the port to the addresses of a network, whose domains cannot have one.
foreach ( getenv( 'WORDPRESS_NETWORK' ) ? array( 'option_home', 'option_siteurl' ) : array() as $name ) {
	add_filter(
		$name,
		function ( $url ) {
			return preg_replace( '#^http://127\.0\.0\.1(?=/|$)#', 'http://127.0.0.1:' . getenv( 'WORDPRESS_PORT' ), $url );
		}
	);
}

add_filter( 'pre_wp_mail', '__return_true' );

// Faults that a test plants in its own request: `X-Test-Fault: exit_before=media, now=+301`.
$faults = array();
foreach ( array_filter( explode( ',', isset( $_SERVER['HTTP_X_TEST_FAULT'] ) ? $_SERVER['HTTP_X_TEST_FAULT'] : '' ) ) as $fault ) {
	list( $name, $value )    = explode( '=', trim( $fault ) . '=' );
	$faults[ $name ] = $value;
}

// The process ends before a step, as if it had been killed.
if ( isset( $faults['exit_before'] ) ) {
	add_action(
		'autowriter_before_step',
		function ( $step ) use ( $faults ) {
			if ( $step === $faults['exit_before'] ) {
				status_header( 500 );
				exit( 'killed' );
			}
		}
	);
}

// The process ends when the post is in the database, before anything else of it is.
if ( isset( $faults['exit_after_insert'] ) ) {
	add_action(
		'save_post_post',
		function () {
			status_header( 500 );
			exit( 'killed' );
		}
	);
}

// The process ends when the row of an image, or a meta of it, is in the database: `exit_after_image=row`.
if ( isset( $faults['exit_after_image'] ) ) {
	$end = function ( $id, $post_id = 0, $name = 'row' ) use ( $faults ) {
		if ( $name === $faults['exit_after_image'] ) {
			status_header( 500 );
			exit( 'killed' );
		}
	};
	add_action( 'add_attachment', $end );
	add_action( 'added_post_meta', $end, 10, 3 );
}

// The process waits before a step: it creates the file FOLDER/waiting, and continues when FOLDER/go exists.
if ( isset( $faults['wait_before'] ) ) {
	add_action(
		'autowriter_before_step',
		function ( $step ) use ( $faults ) {
			list( $at, $folder ) = explode( ':', $faults['wait_before'] );
			if ( $step === $at ) {
				touch( "$folder/waiting" );
				while ( ! file_exists( "$folder/go" ) ) {
					usleep( 10000 );
					clearstatcache();
				}
			}
		}
	);
}

if ( isset( $faults['lock_seconds'] ) ) {
	add_filter(
		'autowriter_lock_seconds',
		function () use ( $faults ) {
			return (int) $faults['lock_seconds'];
		}
	);
}

if ( isset( $faults['now'] ) ) {
	add_filter(
		'autowriter_now',
		function ( $seconds ) use ( $faults ) {
			return $seconds + (int) $faults['now'];
		}
	);
}

// A plugin of somebody else gives every post another status.
if ( isset( $faults['status'] ) ) {
	add_filter(
		'wp_insert_post_data',
		function ( $data ) use ( $faults ) {
			return 'post' === $data['post_type'] ? array( 'post_status' => $faults['status'] ) + $data : $data;
		},
		99
	);
}

// A person publishes the post just before WordPress saves it.
if ( isset( $faults['publish_before_save'] ) ) {
	add_filter(
		'wp_insert_post_data',
		function ( $data, $fields ) {
			global $wpdb;
			$wpdb->update( $wpdb->posts, array( 'post_status' => 'publish' ), array( 'ID' => $fields['ID'], 'post_type' => 'post' ) );
			return $data;
		},
		99,
		2
	);
}

// The database refuses terms, SEO data; the disk refuses files.
if ( isset( $faults['terms'] ) ) {
	add_filter(
		'pre_insert_term',
		function () {
			return new WP_Error( 'db_insert_error', 'The disk is full.' );
		}
	);
}
if ( isset( $faults['seo'] ) ) {
	add_filter(
		'update_post_metadata',
		function ( $check, $id, $key ) {
			return 'rank_math_description' === $key ? false : $check;
		},
		10,
		3
	);
}
if ( isset( $faults['disk'] ) ) {
	add_filter(
		'wp_upload_bits',
		function () {
			return 'The disk is full.';
		}
	);
}
if ( isset( $faults['error_in'] ) ) {
	add_action(
		'autowriter_before_step',
		function ( $step ) use ( $faults ) {
			if ( $step === $faults['error_in'] ) {
				throw new RuntimeException( 'A plugin of somebody else failed.' );
			}
		}
	);
}
