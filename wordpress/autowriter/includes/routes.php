<?php
/**
 * The REST routes.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const KEY_PATTERN = '(?P<key>[0-9a-f]{64})';

/**
 * Register the routes. None declares arguments: WordPress would check them before the signature.
 */
function register_routes() {
	register_route( '/jobs', 'POST', 'handle_publish' );
	register_route( '/jobs/' . KEY_PATTERN, 'GET', 'handle_status' );
	register_route( '/jobs/' . KEY_PATTERN . '/mark', 'POST', 'handle_mark' );
	register_route( '/ping', 'GET', 'handle_ping' );
}

/**
 * Register one route, whose requests are signed.
 *
 * @param string $path    The path within the namespace.
 * @param string $method  The HTTP method.
 * @param string $handler A function of this file. It returns the HTTP status and the answer.
 */
function register_route( string $path, string $method, string $handler ) {
	register_rest_route(
		REST_NAMESPACE,
		$path,
		array(
			'methods'             => $method,
			'permission_callback' => __NAMESPACE__ . '\authenticate',
			'callback'            => function ( \WP_REST_Request $request ) use ( $handler ) {
				try {
					list( $status, $answer ) = call_user_func( __NAMESPACE__ . '\\' . $handler, $request );
					return new \WP_REST_Response( $answer, $status );
				} catch ( Failure $failure ) {
					return $failure->to_wp_error();
				}
			},
		)
	);
}

/**
 * `POST /jobs`: publish an article.
 *
 * @param \WP_REST_Request $request The request.
 */
function handle_publish( \WP_REST_Request $request ): array {
	return publish( parse_publication( $request->get_body() ) );
}

/**
 * `GET /jobs/{key}`: the status of a job.
 *
 * @param \WP_REST_Request $request The request.
 */
function handle_status( \WP_REST_Request $request ): array {
	return array( 200, describe_job( get_own_job( get_key( $request ) ) ) );
}

/**
 * `POST /jobs/{key}/mark`: mark the draft of a rejected article.
 *
 * @param \WP_REST_Request $request The request.
 * @throws Failure If there is no note.
 */
function handle_mark( \WP_REST_Request $request ): array {
	$sent = json_decode( $request->get_body(), true, 4 );
	if ( ! is_array( $sent ) ) {
		throw new Failure( 'INVALID_REQUEST', 'The body is not a JSON object.' );
	}
	$note = read_text( $sent, 'note', 1, 10000 );
	return array( 200, describe_job( mark_job( get_own_job( get_key( $request ) ), $note ) ) );
}

/**
 * Return the key of the job that the route names. `$request['key']` would prefer one in the query or the body.
 *
 * @param \WP_REST_Request $request The request.
 */
function get_key( \WP_REST_Request $request ): string {
	return $request->get_url_params()['key'];
}

/**
 * `GET /ping`: which site this is.
 */
function handle_ping(): array {
	$site = describe_site( get_current_blog_id() );
	return array(
		200,
		array(
			'site_name'         => $site['name'],
			'site_url'          => $site['url'],
			'blog_id'           => $site['blog_id'],
			'multisite'         => is_multisite(),
			'sites'             => list_open_sites(),
			'plugin_version'    => VERSION,
			'wordpress_version' => get_bloginfo( 'version' ),
			'max_body_bytes'    => get_max_body_bytes(),
		),
	);
}

/**
 * Add Retry-After to errors that say when to try again, and keep caches from serving an answer to those who did not sign.
 *
 * @param \WP_REST_Response $response The response.
 * @param \WP_REST_Server   $server   The server.
 * @param \WP_REST_Request  $request  The request.
 */
function add_response_headers( $response, $server, $request ) {
	if ( 0 === strpos( $request->get_route(), '/' . REST_NAMESPACE . '/' ) ) {
		$response->header( 'Cache-Control', 'no-store' );
		$answer = $response->get_data();
		if ( isset( $answer['data']['retry_after'] ) ) {
			$response->header( 'Retry-After', (string) $answer['data']['retry_after'] );
		}
	}
	return $response;
}
