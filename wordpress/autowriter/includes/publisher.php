<?php
/**
 * Publish an article: once per key and revision, and resumed where an earlier attempt stopped.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const LOCK_SECONDS = 5;

/**
 * Publish an article, and return the answer with the HTTP status.
 *
 * @param array $publication The publication.
 * @throws Failure If it is refused or fails.
 */
function publish( array $publication ): array {
	$blog_id = choose_site( $publication['blog_id'] );
	/**
	 * Filters how long a request waits for another one with the same key.
	 *
	 * @param int $seconds The time.
	 */
	$seconds = (int) apply_filters( 'autowriter_lock_seconds', LOCK_SECONDS );
	return with_lock(
		'job ' . $publication['idempotency_key'],
		$seconds,
		function () use ( $publication, $blog_id ) {
			return publish_alone( $publication, $blog_id );
		},
		function () {
			throw new Failure(
				'IDEMPOTENCY_DUPLICATE',
				'Another request with this key is being processed.',
				array(
					'retryable'   => true,
					'retry_after' => LOCK_SECONDS,
				)
			);
		}
	);
}

/**
 * Publish an article whose lock is held.
 *
 * @param array $publication The publication.
 * @param int   $blog_id     The site of the post.
 * @throws Failure If it is refused or fails.
 */
function publish_alone( array $publication, int $blog_id ): array {
	$job = find_job( $publication['idempotency_key'] );
	if ( null === $job ) {
		return run_publication( insert_job( $publication, $blog_id ), $publication );
	}
	check_conflicts( $job, $publication, $blog_id );
	if ( is_replay( $job, $publication ) ) {
		return array( 200, array( 'replay' => true ) + $job['answer'] );
	}
	return run_publication( begin_revision( $job, $publication ), $publication );
}

/**
 * Refuse a publication that contradicts what is stored under its key, or would overwrite what a person did.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 * @param int   $blog_id     The site of the post.
 * @throws Failure If it does.
 */
function check_conflicts( array $job, array $publication, int $blog_id ) {
	if ( get_current_blog_id() !== $job['home_blog_id'] || $blog_id !== $job['blog_id'] ) {
		throw new Failure( 'IDEMPOTENCY_DUPLICATE', 'This key belongs to an article of another site.' );
	}
	if ( $publication['revision'] < $job['revision'] ) {
		throw new Failure(
			'STALE_REVISION',
			"Revision {$publication['revision']} is older than revision {$job['revision']}, which this site has.",
			array( 'revision' => $job['revision'] )
		);
	}
	if ( $publication['revision'] === $job['revision'] && $publication['body_hash'] !== $job['body_hash'] ) {
		throw new Failure( 'IDEMPOTENCY_DUPLICATE', "Revision {$job['revision']} was sent before with another body: raise the revision." );
	}
	if ( ! $publication['force'] && ! is_finished_revision( $job, $publication ) ) {
		in_site(
			$blog_id,
			function () use ( $job ) {
				check_untouched( $job );
			}
		);
	}
}

/**
 * Refuse to overwrite a post that a person edited or deleted.
 *
 * @param array $job The job, in the site of its post.
 * @throws Failure If somebody did.
 */
function check_untouched( array $job ) {
	if ( is_post_gone( $job ) ) {
		throw new Failure( 'POST_DELETED', "Post {$job['post_id']} was deleted or is in the trash: `force` creates a new draft." );
	}
	$edited = $job['post_id'] ? list_edited_parts( $job ) : array();
	if ( $edited ) {
		throw new Failure(
			'POST_EDITED',
			"Somebody edited post {$job['post_id']}: `force` overwrites it.",
			array( 'edited' => $edited )
		);
	}
}

/**
 * Return whether to answer with the stored answer. With `force`, only if the post still is what that answer says.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 */
function is_replay( array $job, array $publication ): bool {
	if ( ! is_finished_revision( $job, $publication ) ) {
		return false;
	}
	return ! $publication['force'] || in_site(
		$job['blog_id'],
		function () use ( $job ) {
			return ! is_post_gone( $job ) && ! list_edited_parts( $job );
		}
	);
}

/**
 * Return whether this revision was published before.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 */
function is_finished_revision( array $job, array $publication ): bool {
	return $publication['revision'] === $job['revision'] && in_array( $job['status'], FINISHED, true );
}

/**
 * Store that a revision is being published. A post that is gone is replaced by a new draft.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 */
function begin_revision( array $job, array $publication ): array {
	$columns = array(
		'job_id'    => $publication['job_id'],
		'revision'  => $publication['revision'],
		'body_hash' => $publication['body_hash'],
		'status'    => 'publishing',
		'steps'     => array(),
		'error'     => array(),
	);

	$gone = in_site(
		$job['blog_id'],
		function () use ( $job ) {
			return is_post_gone( $job );
		}
	);
	if ( $gone ) {
		$columns += array(
			'post_id' => 0,
			'drafts'  => $job['drafts'] + 1,
			'written' => array(),
		);
	}
	return array( 'resumed' => true ) + update_job( $job, $columns );
}

/**
 * Run the steps of a publication, and store how it ends.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 * @throws Failure If a step fails. The same request resumes it.
 */
function run_publication( array $job, array $publication ): array {
	$is_new = ! $job['post_id'];
	try {
		$job = in_site(
			$job['blog_id'],
			function () use ( $job, $publication ) {
				return as_author(
					function () use ( $job, $publication ) {
						return run_steps( $job, $publication );
					}
				);
			}
		);
	} catch ( Failure $failure ) {
		record_failure( $job, $failure );
		throw $failure;
	} catch ( \Throwable $error ) {
		$failure = new Failure( 'PUBLISH_FAILED', 'The article could not be published: ' . shorten( $error->getMessage() ) );
		record_failure( $job, $failure );
		throw $failure;
	} finally {
		schedule_next_delivery();
	}
	return array( $is_new ? 201 : 200, $job['answer'] );
}

/**
 * Run the steps in the site of the post, as its author, and return the finished job.
 *
 * @param array $job         The job.
 * @param array $publication The publication.
 * @throws Failure If a step fails.
 */
function run_steps( array $job, array $publication ): array {
	$article = $publication['article'];

	$job = begin_step( $job, 'post' );
	$job = $job['post_id'] ? $job : create_post( $job, $article );
	update_post_meta( $job['post_id'], KEY_META, $job['idempotency_key'] );

	$job                            = begin_step( $job, 'media' );
	list( $attachments, $warnings ) = store_images( $job, $article );

	$job   = begin_step( $job, 'terms' );
	$terms = array(
		'category' => resolve_terms( $article['categories'], 'category' ),
		'post_tag' => resolve_terms( $article['tags'], 'post_tag' ),
	);

	// Once more, because images take long enough for a person to save the post meanwhile.
	if ( ! $publication['force'] ) {
		clean_post_cache( $job['post_id'] );
		check_untouched( $job );
	}
	$job = write_article( $job, $article, $attachments, $terms );
	return finish_publication( $job, $warnings );
}

/**
 * Store the post of a job: one that a crash left behind, or a new draft. Only a job that was begun before can have left
 * one, and looking for it reads all posts.
 *
 * @param array $job     The job.
 * @param array $article The article.
 * @throws Failure If it cannot be created.
 */
function create_post( array $job, array $article ): array {
	$begun   = empty( $job['resumed'] ) ? 0 : find_begun_post( $job );
	$post_id = $begun ? $begun : insert_draft( $job, $article );
	return update_job(
		$job,
		array(
			'post_id' => $post_id,
			'written' => get_fingerprint( $post_id ),
		)
	);
}

/**
 * Store the images. Return the ids of their attachments by key, and a warning for each that failed.
 *
 * @param array $job     The job.
 * @param array $article The article.
 */
function store_images( array $job, array $article ): array {
	$attachments = array();
	$warnings    = array();
	foreach ( $article['images'] as $image ) {
		try {
			$attachments[ $image['key'] ] = store_image( $image, $job['post_id'] );

			$detail = array(
				'image'         => $image['key'],
				'attachment_id' => $attachments[ $image['key'] ],
			);
			record_event( $job, 'media_ok', $image['key'], $detail );
		} catch ( Failure $failure ) {
			$warnings[] = build_media_warning( $image['key'], $failure->getMessage() );
		}
	}
	$keys = array_diff( list_placeholders( $article['content'] ), wp_list_pluck( $article['images'], 'key' ) );
	foreach ( $keys as $key ) {
		$warnings[] = build_media_warning( $key, 'The content has a place for this image, but it was not sent.' );
	}
	foreach ( $warnings as $warning ) {
		record_event( $job, 'media_failed', $warning['image'], $warning );
	}
	return array( $attachments, $warnings );
}

/**
 * Return the warning about an image that is missing from the post.
 *
 * @param string $key     The key of the image.
 * @param string $message What went wrong.
 */
function build_media_warning( string $key, string $message ): array {
	return array(
		'code'    => 'MEDIA_UPLOAD_FAIL',
		'image'   => $key,
		'message' => shorten( $message ),
	);
}

/**
 * Write the post and its SEO data, and store the fingerprint of what was written, even if only half of it was.
 *
 * @param array $job         The job.
 * @param array $article     The article.
 * @param array $attachments The ids of attachments by the keys of their images.
 * @param array $terms       The ids of the terms by taxonomy.
 * @throws Failure If it fails.
 */
function write_article( array $job, array $article, array $attachments, array $terms ): array {
	// If this process dies while it writes, the next attempt must not take its half-written post for an edited one.
	$job = update_job( $job, array( 'written' => array() ) );
	try {
		$job = begin_step( $job, 'content' );
		write_post( $job['post_id'], $article, $attachments, $terms );
		$job = begin_step( $job, 'seo' );
		record_event( $job, 'seo_applied', (string) $job['post_id'], array( 'meta' => apply_seo( $job['post_id'], $article['seo'] ) ) );
	} finally {
		$job = update_job( $job, array( 'written' => get_fingerprint( $job['post_id'] ) ) );
	}
	return $job;
}

/**
 * Store that a publication is done, with the answer that replays of it receive.
 *
 * @param array $job      The job.
 * @param array $warnings What is missing from the post.
 */
function finish_publication( array $job, array $warnings ): array {
	$status = $warnings ? 'partial' : 'done';
	delete_post_meta( $job['post_id'], MARK_META );
	$detail = array(
		'post_id'  => $job['post_id'],
		'status'   => $status,
		'warnings' => count( $warnings ),
	);
	record_event( $job, 'done', (string) $job['post_id'], $detail );
	$answer = array(
		'job_id'   => $job['job_id'],
		'post_id'  => $job['post_id'],
		'status'   => $status,
		'revision' => $job['revision'],
		'edit_url' => admin_url( "post.php?post={$job['post_id']}&action=edit" ),
		'replay'   => false,
		'events'   => list_events( $job['idempotency_key'], $job['revision'] ),
		'warnings' => $warnings,
	);

	$job = begin_step( $job, 'done' );
	return update_job(
		$job,
		array(
			'status' => $status,
			'answer' => $answer,
			'note'   => '',
		)
	);
}

/**
 * Store that a step begins, and that those before it are done.
 *
 * @param array  $job  The job.
 * @param string $step Its name.
 */
function begin_step( array $job, string $step ): array {
	$job = update_job( $job, array( 'steps' => $job['steps'] + array( $step => format_time( now() ) ) ) );
	/**
	 * Fires before each step of a publication: post, media, terms, content, seo and done.
	 *
	 * @param string $step The step.
	 * @param string $key  The idempotency key.
	 */
	do_action( 'autowriter_before_step', $step, $job['idempotency_key'] );
	return $job;
}

/**
 * Store that a publication failed. The post and the steps that it got to stay for the next attempt.
 *
 * @param array   $job     The job.
 * @param Failure $failure Why.
 */
function record_failure( array $job, Failure $failure ) {
	update_job(
		$job,
		array(
			'status' => 'failed',
			'error'  => array(
				'code'    => $failure->error_code,
				'message' => shorten( $failure->getMessage() ),
			),
		)
	);
}
