<?php
/**
 * The jobs on the page of the plugin.
 *
 * @package AutoWriter
 */

namespace AutoWriter;

const JOBS_PER_PAGE = 20;

/**
 * Show one page of the jobs.
 */
function show_jobs() {
	// Reading a page number changes nothing, so it needs no nonce.
	$page = isset( $_GET['paged'] ) ? max( 1, absint( wp_unslash( $_GET['paged'] ) ) ) : 1; // phpcs:ignore WordPress.Security.NonceVerification, WordPress.CSRF.NonceVerification
	echo '<h2>' . esc_html__( 'Articles', 'autowriter' ) . '</h2>';
	$jobs = list_jobs( $page, JOBS_PER_PAGE );
	if ( ! $jobs ) {
		echo '<p>' . esc_html__( 'No article has been received yet.', 'autowriter' ) . '</p>';
		return;
	}
	echo '<table class="widefat striped"><thead><tr>';
	foreach ( list_columns() as $label ) {
		echo '<th scope="col">' . esc_html( $label ) . '</th>';
	}
	echo '</tr></thead><tbody>';
	array_map( __NAMESPACE__ . '\show_job', $jobs );
	echo '</tbody></table>';
	show_page_links( $page );
}

/**
 * Return the labels of the columns.
 */
function list_columns(): array {
	return array(
		__( 'Article', 'autowriter' ),
		__( 'Revision', 'autowriter' ),
		__( 'Status', 'autowriter' ),
		__( 'Notes', 'autowriter' ),
		__( 'Last change', 'autowriter' ),
	);
}

/**
 * Show one job.
 *
 * @param array $job The job.
 */
function show_job( array $job ) {
	$labels = array(
		'publishing' => __( 'In progress', 'autowriter' ),
		'done'       => __( 'Saved as a draft', 'autowriter' ),
		'partial'    => __( 'Saved, images missing', 'autowriter' ),
		'failed'     => __( 'Failed', 'autowriter' ),
	);
	echo '<tr><td>';
	show_job_title( $job );
	echo '</td>';
	echo '<td>' . esc_html( (string) $job['revision'] ) . '</td>';
	echo '<td>' . esc_html( isset( $labels[ $job['status'] ] ) ? $labels[ $job['status'] ] : $job['status'] ) . '</td>';
	echo '<td>' . esc_html( implode( ' · ', list_notes( $job ) ) ) . '</td>';
	echo '<td>' . esc_html( wp_date( get_option( 'date_format' ) . ' ' . get_option( 'time_format' ), $job['updated_at'] ) ) . '</td></tr>';
}

/**
 * Show the title of a job's post with a link to it, or the id of a job without a post.
 *
 * @param array $job The job.
 */
function show_job_title( array $job ) {
	$shown = in_site_of_job(
		$job,
		function () use ( $job ) {
			$post = $job['post_id'] ? get_post( $job['post_id'] ) : null;
			return $post ? array( admin_url( "post.php?post={$post->ID}&action=edit" ), get_the_title( $post ) ) : null;
		}
	);
	if ( null === $shown ) {
		echo esc_html( $job['job_id'] );
	} else {
		printf( '<a href="%s">%s</a>', esc_url( $shown[0] ), esc_html( wp_specialchars_decode( $shown[1], ENT_QUOTES ) ) );
	}
}

/**
 * Return what there is to say about a job: its error, its missing images, why it was rejected, notifications that failed.
 *
 * @param array $job The job.
 */
function list_notes( array $job ): array {
	$notes = 'partial' === $job['status'] ? wp_list_pluck( $job['answer']['warnings'], 'message' ) : array();
	if ( $job['error'] ) {
		$notes[] = "{$job['error']['code']}: {$job['error']['message']}";
	}
	if ( '' !== $job['note'] ) {
		/* translators: %s: why a person rejected the article. */
		$notes[] = sprintf( __( 'Rejected in AutoWriter: %s', 'autowriter' ), $job['note'] );
	}
	$failed = count_failed_events( $job['idempotency_key'] );
	if ( $failed ) {
		/* translators: %d: number of notifications. */
		$notes[] = sprintf( _n( '%d notification was not delivered', '%d notifications were not delivered', $failed, 'autowriter' ), $failed );
	}
	return $notes;
}

/**
 * Show links to the other pages of jobs.
 *
 * @param int $page The current page.
 */
function show_page_links( int $page ) {
	$links = paginate_links(
		array(
			'base'    => add_query_arg( 'paged', '%#%', admin_url( 'admin.php?page=' . PAGE ) ),
			'format'  => '',
			'current' => $page,
			'total'   => (int) ceil( count_jobs() / JOBS_PER_PAGE ),
		)
	);
	if ( $links ) {
		echo '<div class="tablenav"><div class="tablenav-pages">' . wp_kses_post( $links ) . '</div></div>';
	}
}
