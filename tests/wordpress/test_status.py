"""The dashboard asks for the status of a job, marks rejected drafts and tests the connection."""

from __future__ import annotations

from tests.wordpress.articles import make_image, make_publication, new_key
from tests.wordpress.dashboard import Dashboard, read_error
from tests.wordpress.posts import edit_post, read_post

READ_JOBS = """
$table = $wpdb->base_prefix . 'autowriter_jobs';
$sql   = "SELECT * FROM $table WHERE idempotency_key IN (%s, %s) ORDER BY id";
return $wpdb->get_results( $wpdb->prepare( $sql, $keys ), ARRAY_A );
"""
STATES = "return get_post_states( get_post( $id ) );"


def test_the_status_of_a_job_has_its_steps_and_events(dashboard: Dashboard) -> None:
    publication = make_publication(images=[make_image(new_key(), "featured")])
    published = dashboard.publish(publication).json()
    status = dashboard.get_job(publication["idempotency_key"]).json()
    assert (status["job_id"], status["post_id"]) == (publication["job_id"], published["post_id"])
    assert (status["status"], status["post_status"], status["revision"]) == ("done", "draft", 1)
    assert (status["edited"], status["note"], status["error"]) == (False, None, None)
    assert list(status["steps"]) == ["post", "media", "terms", "content", "seo", "done"]
    assert status["events"] == published["events"]
    assert [event["sequence"] for event in status["events"]] == [1, 2, 3]
    assert len({event["id"] for event in status["events"]}) == 3


def test_the_plugin_keeps_a_record_of_every_publication(dashboard: Dashboard) -> None:
    published, failed = new_key(), new_key()
    for revision in (1, 2):
        post_id = dashboard.publish(make_publication(published, revision=revision)).json()["post_id"]
    dashboard.publish(make_publication(failed), fault="seo")
    dashboard.site.run_php("wp_delete_post( $id, true );", id=post_id)
    rows = dashboard.site.run_php(READ_JOBS, keys=[published, failed])
    assert [(row["idempotency_key"], row["revision"], row["status"]) for row in rows] == [
        (published, "2", "done"),
        (failed, "1", "failed"),
    ]
    assert (rows[0]["job_id"], rows[0]["post_id"]) == (f"job-{published[:8]}", str(post_id))
    assert "SEO_APPLY_FAIL" in rows[1]["error"]
    assert all(int(row["created_at"]) <= int(row["updated_at"]) for row in rows)
    assert [event["kind"] for event in dashboard.get_job(published).json()["events"]] == ["seo_applied", "done"] * 2


def test_events_are_numbered_on_across_revisions(dashboard: Dashboard) -> None:
    key = new_key()
    for revision in (1, 2):
        dashboard.publish(make_publication(key, revision=revision))
    events = dashboard.get_job(key).json()["events"]
    assert [(each["sequence"], each["revision"]) for each in events] == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_the_status_follows_what_people_do_with_the_post(dashboard: Dashboard) -> None:
    publication = make_publication()
    key, post_id = publication["idempotency_key"], dashboard.publish(publication).json()["post_id"]
    edit_post(dashboard.site, post_id, post_status="publish", post_title="Meu")
    status = dashboard.get_job(key).json()
    assert (status["post_status"], status["edited"]) == ("publish", True)
    dashboard.site.run_php("wp_delete_post( $id, true );", id=post_id)
    status = dashboard.get_job(key).json()
    assert (status["post_id"], status["post_status"], status["edited"]) == (post_id, None, False)


def test_an_unknown_job_is_not_found(dashboard: Dashboard) -> None:
    assert read_error(dashboard.get_job(new_key())) == (404, "JOB_NOT_FOUND", False)
    assert read_error(dashboard.mark(new_key(), "x")) == (404, "JOB_NOT_FOUND", False)


def test_a_rejected_draft_is_marked_and_stays_a_draft(dashboard: Dashboard) -> None:
    publication = make_publication()
    key, post_id = publication["idempotency_key"], dashboard.publish(publication).json()["post_id"]
    answer = dashboard.mark(key, "Fora do tema <script>x</script>& curto")
    assert (answer.status_code, answer.json()["note"]) == (200, "Fora do tema & curto")
    assert read_post(dashboard.site, post_id)["status"] == "draft"
    states = dashboard.site.run_php(STATES, id=post_id)
    assert states["autowriter"] == "Rejected in AutoWriter: Fora do tema &amp; curto"
    assert dashboard.get_job(key).json()["edited"] is False


def test_marking_twice_keeps_the_last_note(dashboard: Dashboard) -> None:
    publication = make_publication()
    dashboard.publish(publication)
    for note in ("um", "dois"):
        dashboard.mark(publication["idempotency_key"], note)
    assert dashboard.get_job(publication["idempotency_key"]).json()["note"] == "dois"


def test_a_newer_revision_removes_the_mark(dashboard: Dashboard) -> None:
    key = new_key()
    post_id = dashboard.publish(make_publication(key)).json()["post_id"]
    dashboard.mark(key, "Fora do tema")
    dashboard.publish(make_publication(key, revision=2))
    assert dashboard.get_job(key).json()["note"] is None
    assert "autowriter" not in dashboard.site.run_php(STATES, id=post_id)


def test_a_mark_needs_a_note(dashboard: Dashboard) -> None:
    publication = make_publication()
    dashboard.publish(publication)
    assert read_error(dashboard.mark(publication["idempotency_key"], "")) == (400, "INVALID_REQUEST", False)


def test_ping_says_which_site_this_is(dashboard: Dashboard) -> None:
    answer = dashboard.send("GET", "/ping").json()
    address = f"{dashboard.site.address}/"
    assert (answer["site_name"], answer["site_url"], answer["blog_id"]) == ("Casa & Jardim", address, 1)
    assert answer["sites"] == [{"blog_id": 1, "name": "Casa & Jardim", "url": address}]
    assert (answer["plugin_version"], answer["multisite"]) == ("1.0.0", False)
    assert answer["wordpress_version"].startswith("6.")
    assert answer["max_body_bytes"] == 16 * 1024**2
