"""A key is one article: published once, updated by newer revisions, and never against what a person did."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.wait_timeout import WAIT_TIMEOUT
from tests.wordpress.articles import make_image, make_placeholder, make_publication, new_key
from tests.wordpress.dashboard import Dashboard, read_error
from tests.wordpress.polling import wait_until
from tests.wordpress.posts import count_posts, edit_post, read_post
from tests.wordpress.site import WordPress

COUNT_ATTACHMENTS = """
return count( get_posts( array(
	'post_type' => 'attachment', 'numberposts' => -1, 'meta_key' => '_autowriter_image_key', 'meta_value' => $key,
) ) );
"""
COUNT_IMAGES_OF_POST = """
return count( get_posts( array( 'post_type' => 'attachment', 'numberposts' => -1, 'post_parent' => $id ) ) );
"""
COUNT_JOBS = """
$table = $wpdb->base_prefix . 'autowriter_jobs';
return (int) $wpdb->get_var( $wpdb->prepare( "SELECT COUNT(*) FROM $table WHERE idempotency_key = %s", $key ) );
"""


def test_the_same_request_again_is_answered_with_the_same_post(dashboard: Dashboard) -> None:
    publication = make_publication(images=[make_image(new_key(), "featured")])
    first, second = dashboard.publish(publication), dashboard.publish(publication)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == {**first.json(), "replay": True}
    assert count_posts(dashboard.site, publication["idempotency_key"]) == 1


def test_a_replay_does_not_touch_a_post_that_a_person_edited(dashboard: Dashboard) -> None:
    publication = make_publication()
    post_id = dashboard.publish(publication).json()["post_id"]
    edit_post(dashboard.site, post_id, post_content="<p>Meu texto.</p>")
    assert dashboard.publish(publication).json()["replay"] is True
    assert read_post(dashboard.site, post_id)["content"] == "<p>Meu texto.</p>"


def test_a_partial_publication_is_replayed_as_partial(dashboard: Dashboard) -> None:
    publication = make_publication(images=[make_image(new_key(), "featured", data="eA==")])
    first, second = dashboard.publish(publication).json(), dashboard.publish(publication).json()
    assert second == {**first, "replay": True}
    assert second["warnings"][0]["code"] == "MEDIA_UPLOAD_FAIL"


def test_the_order_of_members_does_not_make_another_body(dashboard: Dashboard) -> None:
    publication = make_publication()
    dashboard.publish(publication)
    turned = dict(reversed(publication.items())) | {"article": dict(reversed(publication["article"].items()))}
    assert dashboard.publish(turned).json()["replay"] is True


def test_a_higher_revision_updates_the_same_post(dashboard: Dashboard) -> None:
    key = new_key()
    first = dashboard.publish(make_publication(key, images=[make_image(f"{key}-1", "featured")])).json()
    before = read_post(dashboard.site, first["post_id"])
    changed: dict[str, Any] = {
        "title": "Novo título",
        "slug": f"novo-{key[:8]}",
        "content": "<p>Novo texto.</p>",
        "categories": ["Receitas"],
        "tags": ["mate"],
        "seo": {"title": "Novo", "description": "", "focus_keyword": "mate"},
        "images": [make_image(f"{key}-2", "featured")],
    }
    answer = dashboard.publish(make_publication(key, revision=3, **changed))
    assert (answer.status_code, answer.json()["post_id"]) == (200, first["post_id"])
    assert (answer.json()["revision"], answer.json()["replay"]) == (3, False)
    post = read_post(dashboard.site, first["post_id"])
    assert (post["title"], post["slug"], post["content"]) == ("Novo título", f"novo-{key[:8]}", "<p>Novo texto.</p>")
    assert (post["categories"], post["tags"], post["status"]) == (["Receitas"], ["mate"], "draft")
    assert post["meta"]["_yoast_wpseo_title"] == "Novo"
    assert "_yoast_wpseo_metadesc" not in post["meta"]
    assert post["thumbnail"] not in (0, before["thumbnail"])
    assert count_posts(dashboard.site, key) == 1


def test_an_article_without_a_featured_image_any_more_loses_it(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key, images=[make_image(key, "featured")])).json()["post_id"]
    dashboard.publish(make_publication(key, revision=2))
    assert read_post(dashboard.site, post_id)["thumbnail"] == 0


def test_a_featured_image_that_fails_leaves_the_earlier_one(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key, images=[make_image(key, "featured")])).json()["post_id"]
    before = read_post(dashboard.site, post_id)["thumbnail"]
    dashboard.publish(make_publication(key, revision=2, images=[make_image(f"{key}-2", "featured", data="eA==")]))
    assert read_post(dashboard.site, post_id)["thumbnail"] == before


@pytest.mark.parametrize("status", ["publish", "private", "pending", "future"])
def test_an_update_never_changes_the_status_of_a_post(dashboard: Dashboard, status: str) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    date: dict[str, Any] = {
        "post_date_gmt": "2035-01-01 12:00:00",
        "post_date": "2035-01-01 12:00:00",
        "edit_date": True,
    }
    edit_post(dashboard.site, post_id, post_status=status, **(date if status == "future" else {}))
    slug = read_post(dashboard.site, post_id)["slug"]
    answer = dashboard.publish(make_publication(key, revision=2, title="Depois", slug=f"outro-{key[:8]}"))
    assert answer.status_code == 200
    post = read_post(dashboard.site, post_id)
    assert (post["title"], post["status"]) == ("Depois", status)
    assert post["slug"] == (f"outro-{key[:8]}" if status == "pending" else slug)


def test_no_other_plugin_publishes_a_draft_while_it_is_written(dashboard: Dashboard) -> None:
    key = new_key()
    for revision in (1, 2):
        answer = dashboard.publish(make_publication(key, revision=revision), fault="status=publish")
        assert read_post(dashboard.site, answer.json()["post_id"])["status"] == "draft"


@pytest.mark.parametrize(("step", "force"), [("terms", True), ("content", False), ("content", True)])
def test_a_post_published_while_a_revision_is_written_stays_published(
    dashboard: Dashboard, tmp_path: Path, step: str, force: bool
) -> None:
    key = new_key()
    dashboard.publish(make_publication(key))
    update = make_publication(key, revision=2, title="Dois", slug=f"dois-{key[:8]}", force=force)
    published = {"post_status": "publish", "post_name": f"publicado-{key[:8]}"}
    answer, post_id = _edit_while_publishing(dashboard, update, step, tmp_path, **published)
    assert answer.status_code == 200
    post = read_post(dashboard.site, post_id)
    assert (post["status"], post["slug"], post["title"]) == ("publish", published["post_name"], "Dois")


def test_a_post_published_just_before_it_is_saved_stays_published(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    dashboard.publish(make_publication(key, revision=2, title="Dois"), fault="publish_before_save")
    post = read_post(dashboard.site, post_id)
    assert (post["status"], post["title"]) == ("publish", "Dois")


def test_a_scheduled_post_whose_time_has_passed_is_not_published_by_an_update(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    code = """
    $date   = '2020-01-01 12:00:00';
    $fields = array( 'post_status' => 'future', 'post_date_gmt' => $date, 'post_date' => $date );
    $wpdb->update( $wpdb->posts, $fields, array( 'ID' => $id ) );
    """
    dashboard.site.run_php(code, id=post_id)
    assert dashboard.publish(make_publication(key, revision=2)).status_code == 200
    assert read_post(dashboard.site, post_id)["status"] == "future"


def test_a_lower_revision_is_refused(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key, revision=5, title="Cinco")).json()["post_id"]
    answer = dashboard.publish(make_publication(key, revision=4, title="Quatro", force=True))
    assert read_error(answer) == (409, "STALE_REVISION", False)
    assert answer.json()["data"]["revision"] == 5
    assert read_post(dashboard.site, post_id)["title"] == "Cinco"


def test_a_higher_revision_updates_the_same_is_a_replay_and_a_lower_is_stale(dashboard: Dashboard) -> None:
    key = new_key()
    publications = [make_publication(key, revision=each, title=f"Revisão {each}") for each in (2, 3)]
    first, second, replay = (dashboard.publish(publications[each]).json() for each in (0, 1, 1))
    assert [each["replay"] for each in (first, second, replay)] == [False, False, True]
    assert len({each["post_id"] for each in (first, second, replay)}) == 1
    assert read_error(dashboard.publish(publications[0])) == (409, "STALE_REVISION", False)
    assert read_post(dashboard.site, first["post_id"])["title"] == "Revisão 3"


def test_the_same_revision_with_another_body_is_refused(dashboard: Dashboard) -> None:
    key = new_key()
    dashboard.publish(make_publication(key))
    answer = dashboard.publish(make_publication(key, title="Outro"))
    assert read_error(answer) == (409, "IDEMPOTENCY_DUPLICATE", False)
    assert "retry_after" not in answer.json()["data"]


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"post_content": "<p>Meu texto.</p>"}, "content"),
        ({"post_title": "Meu título"}, "title"),
        ({"post_excerpt": "Meu resumo"}, "excerpt"),
        ({"post_name": "meu-endereco"}, "slug"),
        ({"post_category": [1]}, "categories"),
        ({"tags_input": ["minha"]}, "tags"),
        ({"meta_input": {"_yoast_wpseo_title": "Meu SEO"}}, "seo"),
        ({"meta_input": {"_thumbnail_id": 1}}, "image"),
    ],
)
def test_a_post_that_a_person_edited_is_not_overwritten(
    dashboard: Dashboard, fields: dict[str, Any], part: str
) -> None:
    key = new_key()
    image = make_image(key, "featured")
    post_id = dashboard.publish(make_publication(key, images=[image])).json()["post_id"]
    assert dashboard.get_job(key).json()["edited"] is False
    edit_post(dashboard.site, post_id, **fields)
    edited = read_post(dashboard.site, post_id)
    update = make_publication(key, revision=2, title="Da máquina", images=[image])
    answer = dashboard.publish(update)
    assert read_error(answer) == (409, "POST_EDITED", False)
    assert answer.json()["data"]["edited"] == [part]
    assert read_post(dashboard.site, post_id) == edited
    status = dashboard.get_job(key).json()
    assert (status["edited"], status["revision"], status["status"]) == (True, 1, "done")


@pytest.mark.parametrize("revision", [1, 2])
def test_an_edit_while_the_images_are_stored_is_not_overwritten(
    dashboard: Dashboard, tmp_path: Path, revision: int
) -> None:
    key = new_key()
    if revision > 1:
        dashboard.publish(make_publication(key))
    publication = make_publication(key, revision=revision, title="Da máquina")
    answer, post_id = _edit_while_publishing(dashboard, publication, "terms", tmp_path, post_title="Meu título")
    assert read_error(answer) == (409, "POST_EDITED", False)
    assert read_post(dashboard.site, post_id)["title"] == "Meu título"
    assert dashboard.publish({**publication, "force": True}).json()["status"] == "done"
    assert read_post(dashboard.site, post_id)["title"] == "Da máquina"


def test_force_overwrites_what_a_person_edited(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    edit_post(dashboard.site, post_id, post_title="Meu título")
    forced = make_publication(key, revision=2, title="Da máquina", force=True)
    assert dashboard.publish(forced).json()["post_id"] == post_id
    assert read_post(dashboard.site, post_id)["title"] == "Da máquina"
    assert dashboard.publish({**forced, "force": False}).json()["replay"] is True


def test_publishing_a_draft_does_not_count_as_an_edit(dashboard: Dashboard) -> None:
    slug = f"mesmo-{new_key()[:8]}"
    keys = [new_key(), new_key()]
    for key in keys:
        post_id = dashboard.publish(make_publication(key, slug=slug)).json()["post_id"]
        edit_post(dashboard.site, post_id, post_status="publish")
    assert read_post(dashboard.site, post_id)["slug"] == f"{slug}-2"
    assert dashboard.publish(make_publication(keys[1], revision=2, slug=slug)).status_code == 200
    assert read_post(dashboard.site, post_id)["slug"] == f"{slug}-2"


@pytest.mark.parametrize("remove", ["wp_trash_post( $id )", "wp_delete_post( $id, true )"])
def test_a_deleted_post_is_not_created_again_unless_forced(dashboard: Dashboard, remove: str) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    dashboard.site.run_php(f"return (bool) {remove};", id=post_id)
    update = make_publication(key, revision=2)
    assert read_error(dashboard.publish(update)) == (409, "POST_DELETED", False)
    answer = dashboard.publish({**update, "force": True})
    assert (answer.status_code, answer.json()["revision"]) == (201, 2)
    assert answer.json()["post_id"] != post_id
    assert read_post(dashboard.site, answer.json()["post_id"])["status"] == "draft"
    assert dashboard.publish({**update, "force": True}).json()["replay"] is True


def test_force_restores_a_deleted_post_of_the_same_revision(dashboard: Dashboard) -> None:
    publication = make_publication()
    post_id = dashboard.publish(publication).json()["post_id"]
    dashboard.site.run_php("return (bool) wp_delete_post( $id, true );", id=post_id)
    assert dashboard.publish(publication).json()["post_id"] == post_id
    answer = dashboard.publish({**publication, "force": True}).json()
    assert (answer["replay"], answer["post_id"] != post_id) == (False, True)
    assert [event["kind"] for event in answer["events"]].count("done") == 2


@pytest.mark.parametrize("step", ["post", "media", "terms", "content", "seo", "done"])
def test_a_publication_that_died_before_a_step_is_resumed_with_its_post(dashboard: Dashboard, step: str) -> None:
    image = make_image(new_key())
    publication = make_publication(images=[image], content=f"<p>a</p>{make_placeholder(image['key'])}")
    key = publication["idempotency_key"]
    assert dashboard.publish(publication, fault=f"exit_before={step}").status_code == 500
    begun = dashboard.get_job(key).json()
    assert (begun["status"], begun["post_id"] is None) == ("publishing", step == "post")
    answer = dashboard.publish(publication).json()
    assert answer["status"] == "done"
    assert begun["post_id"] in (None, answer["post_id"])
    assert count_posts(dashboard.site, key) == 1
    assert dashboard.site.run_php(COUNT_ATTACHMENTS, key=image["key"]) == 1
    assert [event["kind"] for event in answer["events"]] == ["media_ok", "seo_applied", "done"]
    assert "<figure" in read_post(dashboard.site, answer["post_id"])["content"]


@pytest.mark.parametrize("written", ["row", "_autowriter_image_key", "_wp_attached_file", "_wp_attachment_metadata"])
def test_an_image_whose_publication_died_is_completed_and_not_stored_again(dashboard: Dashboard, written: str) -> None:
    image = make_image(new_key())
    publication = make_publication(images=[image], content=make_placeholder(image["key"]))
    assert dashboard.publish(publication, fault=f"exit_after_image={written}").status_code == 500
    answer = dashboard.publish(publication).json()
    assert answer["status"] == "done"
    assert dashboard.site.run_php(COUNT_IMAGES_OF_POST, id=answer["post_id"]) == 1
    content = read_post(dashboard.site, answer["post_id"])["content"]
    assert ".png" in content
    assert 'width="32" height="24"' in content


def test_an_image_whose_file_is_gone_is_written_again(dashboard: Dashboard) -> None:
    key = new_key()
    image = make_image(key, "featured")
    post_id = dashboard.publish(make_publication(key, images=[image])).json()["post_id"]
    remove = "return wp_delete_file( get_attached_file( get_post_thumbnail_id( $id ) ) );"
    dashboard.site.run_php(remove, id=post_id)
    dashboard.publish(make_publication(key, revision=2, images=[image]))
    assert dashboard.site.run_php("return is_file( get_attached_file( get_post_thumbnail_id( $id ) ) );", id=post_id)
    assert dashboard.site.run_php(COUNT_ATTACHMENTS, key=key) == 1


def test_a_draft_whose_publication_died_has_its_text_already(dashboard: Dashboard) -> None:
    publication = make_publication(title="C:\\Temp", content="<p>a\\b</p>")
    dashboard.publish(publication, fault="exit_before=media")
    post_id = dashboard.get_job(publication["idempotency_key"]).json()["post_id"]
    post = read_post(dashboard.site, post_id)
    assert (post["title"], post["content"], post["status"]) == ("C:\\Temp", "<p>a\\b</p>", "draft")


def test_a_post_whose_id_was_not_stored_yet_is_found_again(dashboard: Dashboard) -> None:
    publication = make_publication()
    key = publication["idempotency_key"]
    assert dashboard.publish(publication, fault="exit_after_insert").status_code == 500
    assert dashboard.get_job(key).json()["post_id"] is None
    assert count_posts(dashboard.site, key) == 1
    assert dashboard.publish(publication).json()["status"] == "done"
    assert count_posts(dashboard.site, key) == 1


def test_an_update_that_died_while_writing_does_not_count_as_an_edit(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    update = make_publication(key, revision=2, title="Dois")
    assert dashboard.publish(update, fault="exit_before=seo").status_code == 500
    assert dashboard.publish(update).json()["post_id"] == post_id
    assert read_post(dashboard.site, post_id)["title"] == "Dois"


def test_a_draft_edited_after_a_failure_is_not_overwritten_by_the_retry(dashboard: Dashboard) -> None:
    publication = make_publication()
    dashboard.publish(publication, fault="seo")
    post_id = dashboard.get_job(publication["idempotency_key"]).json()["post_id"]
    edit_post(dashboard.site, post_id, post_title="Meu título")
    assert read_error(dashboard.publish(publication)) == (409, "POST_EDITED", False)


def test_an_image_is_stored_once_for_all_revisions_that_have_its_key(dashboard: Dashboard) -> None:
    key = new_key()
    image = make_image(key, "featured")
    for revision in (1, 2):
        answer = dashboard.publish(make_publication(key, revision=revision, images=[image]))
        assert answer.json()["status"] == "done"
    assert dashboard.site.run_php(COUNT_ATTACHMENTS, key=key) == 1


def test_fifty_requests_at_once_make_one_post(dashboard: Dashboard) -> None:
    publication = make_publication(images=[make_image(new_key(), "featured")])
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: dashboard.publish(publication, fault="lock_seconds=60"), range(50)))
    assert sorted(each.status_code for each in answers) == [200] * 49 + [201]
    assert len({each.json()["post_id"] for each in answers}) == 1
    assert count_posts(dashboard.site, publication["idempotency_key"]) == 1
    assert dashboard.site.run_php(COUNT_JOBS, key=publication["idempotency_key"]) == 1


def test_many_articles_at_once_create_each_category_once(dashboard: Dashboard) -> None:
    names = [f"Simultânea {new_key()[:6]}" for _ in range(3)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: dashboard.publish(categories=names), range(8)))
    assert {each.status_code for each in answers} == {201}
    code = "return count( get_terms( array( 'taxonomy' => 'category', 'hide_empty' => false, 'name' => $names ) ) );"
    assert dashboard.site.run_php(code, names=names) == 3


def test_a_request_for_a_key_that_is_being_processed_is_told_to_wait(dashboard: Dashboard, tmp_path: Path) -> None:
    publication = make_publication()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(dashboard.publish, publication, fault=f"wait_before=media:{tmp_path}")
        try:
            wait_until((tmp_path / "waiting").exists, WAIT_TIMEOUT)
            answer = dashboard.publish(publication, fault="lock_seconds=0")
        finally:
            (tmp_path / "go").touch()
        assert first.result().status_code == 201
    assert read_error(answer) == (409, "IDEMPOTENCY_DUPLICATE", True)
    assert answer.headers["retry-after"] == "5"


def test_the_database_itself_allows_a_key_only_once(site: WordPress, dashboard: Dashboard) -> None:
    publication = make_publication()
    dashboard.publish(publication)
    code = """
    $wpdb->suppress_errors();
    $table = $wpdb->base_prefix . 'autowriter_jobs';
    $row   = $wpdb->get_row( $wpdb->prepare( "SELECT * FROM $table WHERE idempotency_key = %s", $key ), ARRAY_A );
    unset( $row['id'] );
    return array( $wpdb->insert( $table, $row ), $wpdb->last_error );
    """
    inserted, error = site.run_php(code, key=publication["idempotency_key"])
    assert inserted is False
    assert "Duplicate entry" in error


def _edit_while_publishing(
    dashboard: Dashboard, publication: dict[str, Any], step: str, folder: Path, **fields: Any
) -> tuple[httpx2.Response, int]:
    """Publish, and change the post as a person does before a step. Return the answer and the post."""
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(dashboard.publish, publication, fault=f"wait_before={step}:{folder}")
        try:
            wait_until((folder / "waiting").exists, WAIT_TIMEOUT)
            post_id: int = dashboard.get_job(publication["idempotency_key"]).json()["post_id"]
            edit_post(dashboard.site, post_id, **fields)
        finally:
            (folder / "go").touch()
        return sent.result(), post_id
