"""An article arrives in WordPress as a draft, complete, and is read back through WordPress itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wordpress.articles import make_image, make_placeholder, make_publication, new_key
from tests.wordpress.dashboard import Dashboard, read_error
from tests.wordpress.posts import count_posts, read_post


def test_an_article_becomes_a_draft_with_its_texts_and_terms(dashboard: Dashboard) -> None:
    publication = make_publication()
    answer = dashboard.publish(publication)
    assert answer.status_code == 201
    post, article = read_post(dashboard.site, answer.json()["post_id"]), publication["article"]
    assert (post["status"], post["slug"], post["excerpt"]) == ("draft", article["slug"], article["excerpt"])
    assert (post["title"], post["content"]) == (article["title"], article["content"])
    assert (post["categories"], sorted(post["tags"])) == (["Bebidas"], ["café", "chá"])
    assert post["author"] == "admin"
    assert post["meta"]["_autowriter_language"] == "pt-BR"


def test_the_answer_says_which_post_it_is(dashboard: Dashboard) -> None:
    publication = make_publication()
    answer = dashboard.publish(publication).json()
    assert answer["job_id"] == publication["job_id"]
    assert (answer["status"], answer["revision"], answer["replay"]) == ("done", 1, False)
    assert answer["warnings"] == []
    expected = f"{dashboard.site.address}/wp-admin/post.php?post={answer['post_id']}&action=edit"
    assert answer["edit_url"] == expected
    assert [event["kind"] for event in answer["events"]] == ["seo_applied", "done"]


def test_seo_data_is_where_yoast_and_rank_math_read_it(dashboard: Dashboard) -> None:
    post_id = dashboard.publish().json()["post_id"]
    meta = read_post(dashboard.site, post_id)["meta"]
    assert (meta["_yoast_wpseo_title"], meta["rank_math_title"]) == ("Guia do chá", "Guia do chá")
    assert (meta["_yoast_wpseo_metadesc"], meta["rank_math_description"]) == ("Tudo sobre chá.", "Tudo sobre chá.")
    assert (meta["_yoast_wpseo_focuskw"], meta["rank_math_focus_keyword"]) == ("chá", "chá")


def test_a_featured_image_is_stored_with_its_alternative_text(dashboard: Dashboard) -> None:
    key = new_key()
    answer = dashboard.publish(images=[make_image(f"{key}-f", "featured", filename="../../xícara ção.php")]).json()
    thumbnail = read_post(dashboard.site, answer["post_id"])["thumbnail"]
    image = dashboard.site.run_php(
        "return array( get_post_meta( $id, '_wp_attachment_image_alt', true ), wp_get_attachment_url( $id ), "
        "get_post_mime_type( $id ), wp_get_post_parent_id( $id ), is_file( get_attached_file( $id ) ) );",
        id=thumbnail,
    )
    assert image[0] == f"Uma xícara ({key}-f)"
    assert image[1].startswith(f"{dashboard.site.address}/wp-content/uploads/")
    assert "/xicara-cao" in image[1]
    assert image[1].endswith(".png")
    assert image[2:] == ["image/png", answer["post_id"], True]
    assert [event["kind"] for event in answer["events"]] == ["media_ok", "seo_applied", "done"]


def test_an_inline_image_takes_the_place_of_its_placeholder(dashboard: Dashboard) -> None:
    key = new_key()
    content = f"<p>Antes.</p>{make_placeholder(key)}<p>Depois.</p>"
    answer = dashboard.publish(content=content, images=[make_image(key, alt='Uma "xícara" <b>')]).json()
    post = read_post(dashboard.site, answer["post_id"])
    before, figure, after = post["content"].partition("<figure")[0], post["content"], post["content"][-14:]
    assert (before, after) == ("<p>Antes.</p>", "<p>Depois.</p>")
    assert 'alt="Uma &quot;xícara&quot;"' in figure
    assert 'width="32" height="24"' in figure
    assert "autowriter:image" not in post["content"]
    assert "<img" in post["shown"]


def test_an_image_that_fails_leaves_the_draft_without_it(dashboard: Dashboard) -> None:
    key = new_key()
    images = [make_image(f"{key}-good", "featured"), make_image(f"{key}-bad", data="bm90IGFuIGltYWdl")]
    content = f"<p>Texto.</p>{make_placeholder(f'{key}-bad')}"
    answer = dashboard.publish(content=content, images=images)
    body = answer.json()
    assert (answer.status_code, body["status"]) == (201, "partial")
    assert [(each["code"], each["image"]) for each in body["warnings"]] == [("MEDIA_UPLOAD_FAIL", f"{key}-bad")]
    assert [event["kind"] for event in body["events"]] == ["media_ok", "media_failed", "seo_applied", "done"]
    post = read_post(dashboard.site, body["post_id"])
    assert (post["content"], post["thumbnail"] > 0) == ("<p>Texto.</p>", True)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"data": "%%%"}, id="not base64"),
        pytest.param({"mime": "image/jpeg"}, id="another type than declared"),
        pytest.param(
            {"mime": "image/svg+xml", "data": "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="}, id="svg"
        ),
        pytest.param({"data": make_image("x")["data"][:120]}, id="truncated"),
    ],
)
def test_data_that_is_no_accepted_image_is_not_stored(dashboard: Dashboard, changes: dict[str, str]) -> None:
    key = new_key()
    answer = dashboard.publish(images=[make_image(key, "featured", **changes)]).json()
    assert (answer["status"], answer["warnings"][0]["code"]) == ("partial", "MEDIA_UPLOAD_FAIL")
    assert read_post(dashboard.site, answer["post_id"])["thumbnail"] == 0


def test_a_full_disk_leaves_the_draft_without_images(dashboard: Dashboard) -> None:
    answer = dashboard.publish(images=[make_image(new_key(), "featured")], fault="disk").json()
    assert (answer["status"], answer["warnings"][0]["code"]) == ("partial", "MEDIA_UPLOAD_FAIL")


def test_a_placeholder_without_its_image_is_removed_and_reported(dashboard: Dashboard) -> None:
    answer = dashboard.publish(content=f"<p>a</p>{make_placeholder('lost')}").json()
    assert (answer["status"], [each["image"] for each in answer["warnings"]]) == ("partial", ["lost"])
    assert read_post(dashboard.site, answer["post_id"])["content"] == "<p>a</p>"


def test_hostile_html_is_removed(dashboard: Dashboard) -> None:
    content = (
        "<p onclick=\"steal()\">a</p><script>steal()</script><style>p{}</style><iframe src='//evil'></iframe>"
        '<a href="javascript:steal()">b</a><img src=x onerror=steal()><svg/onload=steal()><script>steal('
    )
    publication = make_publication(
        content=content,
        title="<script>steal()</script>Chá <b>preto</b>",
        excerpt="<script>steal()</script>resumo",
        categories=["<script>steal()</script>Bebidas <b>x</b>"],
        seo={"title": "<img src=x onerror=steal()>Guia", "description": "", "focus_keyword": ""},
    )
    post = read_post(dashboard.site, dashboard.publish(publication).json()["post_id"])
    assert post["title"] == "Chá preto"
    assert post["content"].startswith("<p>a</p>")
    assert '<a href="steal()">b</a>' in post["content"]
    for each in (post["content"], post["excerpt"], *post["categories"]):
        assert not [word for word in ("<script", "<style", "<iframe", "onerror", "onload", "onclick") if word in each]
    assert "steal(" not in post["content"].replace('href="steal()"', "")
    assert post["meta"]["_yoast_wpseo_title"] == "Guia"
    assert "_yoast_wpseo_metadesc" not in post["meta"]


def test_texts_arrive_unchanged_with_quotes_and_backslashes(dashboard: Dashboard) -> None:
    texts: dict[str, Any] = {
        "title": 'C:\\Temp "O\'Brien" 50%de 🍵',
        "excerpt": "a\\b 'c'",
        "content": "<p>\\n \\\\ \"x\" 'y' 🍵</p>",
    }
    seo = {"title": 'a\\b "c"', "description": "100%ab", "focus_keyword": "o'brien"}
    post = read_post(dashboard.site, dashboard.publish(**texts, seo=seo, tags=["o'brien\\x"]).json()["post_id"])
    assert (post["title"], post["excerpt"], post["content"]) == (texts["title"], texts["excerpt"], texts["content"])
    assert post["meta"]["rank_math_title"] == seo["title"]
    assert post["meta"]["rank_math_description"] == seo["description"]
    assert post["tags"] == ["o'brien\\x"]


def test_categories_that_exist_are_used_again(dashboard: Dashboard) -> None:
    name = f"Sucos & Vitaminas {new_key()[:6]}"
    posts = [dashboard.publish(categories=[name, name.upper()]).json()["post_id"] for _ in range(2)]
    found = [dashboard.site.run_php("return wp_get_post_categories( $id );", id=each) for each in posts]
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_a_category_that_cannot_be_created_fails_and_a_retry_goes_on_with_the_post(dashboard: Dashboard) -> None:
    publication = make_publication(categories=[f"Nova {new_key()[:6]}"])
    assert read_error(dashboard.publish(publication, fault="terms")) == (500, "CATEGORY_CREATE_FAIL", True)
    failed = dashboard.get_job(publication["idempotency_key"]).json()
    assert (failed["status"], failed["error"]["code"]) == ("failed", "CATEGORY_CREATE_FAIL")
    answer = dashboard.publish(publication).json()
    assert (answer["status"], answer["post_id"]) == ("done", failed["post_id"])


def test_seo_data_that_cannot_be_written_fails_and_a_retry_goes_on_with_the_post(dashboard: Dashboard) -> None:
    publication = make_publication()
    assert read_error(dashboard.publish(publication, fault="seo")) == (500, "SEO_APPLY_FAIL", True)
    failed = dashboard.get_job(publication["idempotency_key"]).json()
    answer = dashboard.publish(publication).json()
    assert (failed["status"], answer["status"], answer["post_id"]) == ("failed", "done", failed["post_id"])


def test_an_error_of_another_plugin_fails_the_publication_and_can_be_retried(dashboard: Dashboard) -> None:
    publication = make_publication()
    assert read_error(dashboard.publish(publication, fault="error_in=terms")) == (500, "PUBLISH_FAILED", True)
    assert dashboard.publish(publication).json()["status"] == "done"
    assert count_posts(dashboard.site, publication["idempotency_key"]) == 1


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({"idempotency_key": "A" * 64}, "idempotency_key"),
        ({"revision": 0}, "revision"),
        ({"revision": "1"}, "revision"),
        ({"job_id": ""}, "job_id"),
        ({"force": "yes"}, "force"),
        ({"blog_id": "1"}, "blog_id"),
        ({"title": ""}, "article.title"),
        ({"content": ["a"]}, "article.content"),
        ({"categories": "Bebidas"}, "article.categories"),
        ({"tags": [1]}, "article.tags"),
        ({"seo": "x"}, "article.seo"),
        ({"images": [{"key": "a b"}]}, "article.images[0].key"),
        ({"images": [make_image("a"), make_image("a")]}, "article.images[1].key"),
        ({"images": [make_image("a", "featured"), make_image("b", "featured")]}, "article.images"),
        ({"images": [make_image("a", "banner")]}, "article.images[0].type"),
    ],
)
def test_a_body_that_is_not_valid_is_refused_by_member(
    dashboard: Dashboard, changes: dict[str, Any], member: str
) -> None:
    answer = dashboard.publish(make_publication(**changes))
    assert read_error(answer) == (400, "INVALID_REQUEST", False)
    assert answer.json()["message"].startswith(f"`{member}` must be")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"x"'])
def test_a_body_that_is_no_object_is_refused(dashboard: Dashboard, body: bytes) -> None:
    assert read_error(dashboard.send("POST", "/jobs", body)) == (400, "INVALID_REQUEST", False)


@pytest.mark.parametrize("body", [b"{", b"\xff"])
def test_wordpress_itself_refuses_a_body_that_is_no_json(dashboard: Dashboard, body: bytes) -> None:
    answer = dashboard.send("POST", "/jobs", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "rest_invalid_json")
