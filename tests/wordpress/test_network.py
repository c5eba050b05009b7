"""In a network, an article goes to the site that is asked for, and the plugin returns to its own."""

from __future__ import annotations

import json

import pytest

from tests.wordpress.articles import make_image, make_placeholder, make_publication, new_key
from tests.wordpress.dashboard import Dashboard, read_error
from tests.wordpress.posts import count_posts, edit_post, read_post
from tests.wordpress.site import WordPress

PUBLISH = """
add_action( 'autowriter_before_step', function ( $step ) use ( $fault ) {
    if ( 'content' === $step && 'failure' === $fault ) {
        throw new AutoWriter\\Failure( 'PUBLISH_FAILED', 'x' );
    }
    if ( 'content' === $step && 'error' === $fault ) {
        throw new Error( 'x' );
    }
} );
$user   = get_current_user_id();
$failed = false;
try {
    AutoWriter\\publish( AutoWriter\\parse_publication( $body ) );
} catch ( AutoWriter\\Failure $failure ) {
    $failed = true;
}
return array( $failed, get_current_blog_id(), ms_is_switched(), get_current_user_id() === $user );
"""
DELETE_SITE = """
$wpdb->delete( $wpdb->blogs, array( 'blog_id' => 2 ) );
return $wpdb->query( "DROP TABLE {$wpdb->base_prefix}2_posts, {$wpdb->base_prefix}2_postmeta" );
"""
SITES = {"/": 1, "/viagens/": 2, "/receitas/": 3}


@pytest.fixture(scope="session")
def main(network: WordPress) -> Dashboard:
    """Has the secret of the main site."""
    return Dashboard(network)


@pytest.mark.parametrize("path", SITES)
def test_an_article_goes_to_the_site_that_is_asked_for(main: Dashboard, path: str) -> None:
    key = new_key()
    image = make_image(key)
    publication = make_publication(
        key, blog_id=SITES[path], categories=[f"Só aqui {key[:6]}"], images=[image], content=make_placeholder(key)
    )
    answer = main.publish(publication)
    assert answer.status_code == 201
    assert answer.json()["edit_url"].startswith(f"{main.site.address}{path}wp-admin/post.php")
    post = read_post(main.site, answer.json()["post_id"], path)
    assert (post["status"], post["categories"]) == ("draft", [f"Só aqui {key[:6]}"])
    assert post["meta"]["_yoast_wpseo_title"] == "Guia do chá"
    assert "<img" in post["content"]
    assert [count_posts(main.site, key, each) for each in SITES] == [int(each == path) for each in SITES]


def test_a_newer_revision_and_a_mark_follow_to_the_same_site(main: Dashboard) -> None:
    key = new_key()
    post_id = main.publish(make_publication(key, blog_id=2)).json()["post_id"]
    assert main.publish(make_publication(key, blog_id=2, revision=2, title="Dois")).json()["post_id"] == post_id
    main.mark(key, "Fora do tema")
    post = read_post(main.site, post_id, "/viagens/")
    assert (post["title"], post["meta"]["_autowriter_mark"]) == ("Dois", "Fora do tema")
    edit_post(main.site, post_id, "/viagens/", post_title="Meu")
    status = main.get_job(key).json()
    assert (status["edited"], status["blog_id"]) == (True, 2)
    answer = main.publish(make_publication(key, blog_id=2, revision=3))
    assert read_error(answer) == (409, "POST_EDITED", False)


def test_the_site_of_an_article_never_changes(main: Dashboard) -> None:
    key = new_key()
    main.publish(make_publication(key, blog_id=2))
    answer = main.publish(make_publication(key, blog_id=3, revision=2, force=True))
    assert read_error(answer) == (409, "IDEMPOTENCY_DUPLICATE", False)


def test_an_unknown_site_is_not_found(main: Dashboard, dashboard: Dashboard) -> None:
    assert read_error(main.publish(blog_id=99)) == (404, "BLOG_SWITCH_FAIL", False)
    assert read_error(dashboard.publish(blog_id=2)) == (404, "BLOG_SWITCH_FAIL", False)


def test_a_site_alone_accepts_its_own_number(dashboard: Dashboard) -> None:
    assert dashboard.publish(blog_id=1).status_code == 201


def test_a_site_publishes_to_itself_and_not_to_others(network: WordPress) -> None:
    travel = Dashboard(network, "/viagens/")
    assert travel.publish(blog_id=None).status_code == 201
    assert travel.publish(blog_id=2).status_code == 201
    assert read_error(travel.publish(blog_id=3)) == (403, "BLOG_SWITCH_FAIL", False)


def test_a_site_does_not_see_the_jobs_of_another(network: WordPress) -> None:
    publication = make_publication()
    key = publication["idempotency_key"]
    Dashboard(network, "/viagens/").publish(publication)
    other = Dashboard(network, "/receitas/")
    assert read_error(other.get_job(key)) == (404, "JOB_NOT_FOUND", False)
    assert read_error(other.mark(key, "x")) == (404, "JOB_NOT_FOUND", False)
    assert read_error(other.publish(publication)) == (409, "IDEMPOTENCY_DUPLICATE", False)


def test_ping_lists_the_sites_that_a_secret_opens(main: Dashboard, network: WordPress) -> None:
    address = network.address
    answer = main.send("GET", "/ping").json()
    assert answer["multisite"] is True
    assert [(each["blog_id"], each["name"], each["url"]) for each in answer["sites"]] == [
        (1, "Casa & Jardim", f"{address}/"),
        (2, "Viagens", f"{address}/viagens/"),
        (3, "Receitas", f"{address}/receitas/"),
    ]
    travel = Dashboard(network, "/viagens/").send("GET", "/ping").json()
    assert (travel["site_name"], [each["blog_id"] for each in travel["sites"]]) == ("Viagens", [2])


@pytest.mark.parametrize("state", ["archived", "deleted", "spam"])
def test_a_closed_site_is_not_entered(own_network: WordPress, state: str) -> None:
    own_network.run_php("update_blog_status( 3, $state, 1 );", state=state)
    main = Dashboard(own_network)
    assert read_error(main.publish(blog_id=3)) == (404, "BLOG_SWITCH_FAIL", False)
    assert [each["blog_id"] for each in main.send("GET", "/ping").json()["sites"]] == [1, 2]


def test_the_job_of_a_deleted_site_stays_readable(own_network: WordPress) -> None:
    main, key = Dashboard(own_network), new_key()
    main.publish(make_publication(key, blog_id=2))
    assert own_network.run_php(DELETE_SITE)
    status = main.get_job(key).json()
    assert (status["status"], status["post_status"], status["edited"]) == ("done", None, False)
    assert main.mark(key, "não serve").json()["note"] == "não serve"
    assert own_network.list_complaints("database error") == []


@pytest.mark.parametrize("fault", ["", "failure", "error"])
def test_the_plugin_returns_to_its_site_whatever_happens(network: WordPress, fault: str) -> None:
    body = json.dumps(make_publication(blog_id=2, categories=[new_key()[:8]]))
    assert network.run_php(PUBLISH, body=body, fault=fault) == [bool(fault), 1, False, True]
