<?php
/**
 * The errors that callers of the REST routes receive.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

/**
 * Ends a request with one of the codes below. Messages are English, because they are read in the dashboard, which
 * translates by code.
 */
class Failure extends \RuntimeException {

	/**
	 * The HTTP status of each code, and whether the same request may succeed later.
	 */
	const CODES = array(
		'AUTH_FAILED'           => array( 401, false ),
		'HMAC_INVALID'          => array( 401, false ),
		'RATE_LIMIT'            => array( 429, true ),
		'INVALID_REQUEST'       => array( 400, false ),
		'BODY_TOO_LARGE'        => array( 413, false ),
		'BLOG_SWITCH_FAIL'      => array( 404, false ),
		'JOB_NOT_FOUND'         => array( 404, false ),
		'IDEMPOTENCY_DUPLICATE' => array( 409, false ),
		'STALE_REVISION'        => array( 409, false ),
		'POST_EDITED'           => array( 409, false ),
		'POST_DELETED'          => array( 409, false ),
		'CATEGORY_CREATE_FAIL'  => array( 500, true ),
		'MEDIA_UPLOAD_FAIL'     => array( 500, true ),
		'SEO_APPLY_FAIL'        => array( 500, true ),
		'PUBLISH_FAILED'        => array( 500, true ),
	);

	/**
	 * The code.
	 *
	 * @var string
	 */
	public $error_code;

	/**
	 * The member `data` of the answer.
	 *
	 * @var array
	 */
	public $data;

	/**
	 * Create a failure.
	 *
	 * @param string $error_code One of CODES.
	 * @param string $message    What happened, and what to do.
	 * @param array  $data       More members of `data`; `status` and `retryable` replace those of the code, and
	 *                           `retry_after`, in seconds, also becomes a header.
	 */
	public function __construct( string $error_code, string $message, array $data = array() ) {
		parent::__construct( $message );
		list( $status, $retryable ) = self::CODES[ $error_code ];

		$this->error_code = $error_code;
		$this->data       = $data + array(
			'status'    => $status,
			'retryable' => $retryable,
		);
	}

	/**
	 * Return the failure as WordPress returns errors.
	 */
	public function to_wp_error(): \WP_Error {
		return new \WP_Error( $this->error_code, $this->getMessage(), $this->data );
	}
}
