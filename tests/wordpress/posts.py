"""Posts as WordPress itself reads them."""

from __future__ import annotations

from typing import Any

from tests.wordpress.site import WordPress

READ_POST = """
$post = get_post( $id );
return array(
	'status'     => $post->post_status,
	'title'      => $post->post_title,
	'slug'       => $post->post_name,
	'content'    => $post->post_content,
	'excerpt'    => $post->post_excerpt,
	'author'     => get_userdata( $post->post_author )->user_login,
	'categories' => wp_get_post_categories( $id, array( 'fields' => 'names' ) ),
	'tags'       => wp_get_post_tags( $id, array( 'fields' => 'names' ) ),
	'thumbnail'  => get_post_thumbnail_id( $id ),
	'meta'       => array_map( function ( $values ) { return $values[0]; }, get_post_meta( $id ) ),
	'shown'      => apply_filters( 'the_content', $post->post_content ),
);
"""
COUNT_POSTS = """
$sql = "SELECT COUNT(*) FROM $wpdb->posts WHERE guid LIKE %s";
return (int) $wpdb->get_var( $wpdb->prepare( $sql, "urn:autowriter:$key:%" ) );
"""


def read_post(site: WordPress, post_id: int, path: str = "/") -> dict[str, Any]:
    post: dict[str, Any] = site.run_php(READ_POST, id=post_id, path=path)
    return post


def count_posts(site: WordPress, key: str, path: str = "/") -> int:
    """Return how many posts an article has, in any status."""
    count: int = site.run_php(COUNT_POSTS, key=key, path=path)
    return count


def edit_post(site: WordPress, post_id: int, path: str = "/", **fields: Any) -> None:
    """Change a post as a person does in the editor."""
    code = "wp_set_current_user( 1 ); return wp_update_post( wp_slash( array( 'ID' => $id ) + $fields ) );"
    assert site.run_php(code, id=post_id, fields=fields, path=path) == post_id
