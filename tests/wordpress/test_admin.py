"""The page of the plugin in wp-admin, as an administrator's browser uses it."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from dataclasses import replace

import httpx2
import pytest

from tests.receiver import receiver, respond_with
from tests.wordpress.articles import make_image, make_publication
from tests.wordpress.dashboard import Dashboard, sign
from tests.wordpress.site import WordPress

PAGE = "/wp-admin/admin.php?page=autowriter"
SECRET = re.compile(r'id="autowriter-new-secret">([^<]+)<')


class Browser:
    def __init__(self, http: httpx2.Client) -> None:
        self.http = http

    def open_page(self, address: str = PAGE) -> str:
        answer = self.http.get(address)
        assert answer.status_code == 200, answer.text[:500]
        return answer.text

    def submit(self, action: str, **values: str) -> httpx2.Response:
        """Fill in and send the form with this action, with all that it has on the page."""
        page = self.open_page()
        form = next(each for each in page.split("<form")[1:] if f'value="{action}"' in each).partition("</form")[0]
        hidden = dict(re.findall(r'type="hidden"[^>]* name="([^"]+)" value="([^"]*)"', form))
        return self.http.post("/wp-admin/admin-post.php", data={**hidden, **values})

    def read_notice(self) -> str:
        found = re.search(r'class="notice notice-\w+"><p>(.*?)</p>', self.open_page())
        return html.unescape(found[1]) if found else ""


def log_in(site: WordPress, user: str = "admin") -> Iterator[Browser]:
    with httpx2.Client(base_url=site.address, timeout=60) as http:
        http.get("/wp-login.php")
        http.post("/wp-login.php", data={"log": user, "pwd": user, "testcookie": "1"})
        assert any(name.startswith("wordpress_logged_in") for name in http.cookies)
        yield Browser(http)


@pytest.fixture
def browser(own_site: WordPress) -> Iterator[Browser]:
    yield from log_in(own_site)


def test_a_secret_is_shown_once(own_site: WordPress, browser: Browser) -> None:
    own_site.run_php("delete_option( 'autowriter_secrets' );")
    assert "accepts no articles" in browser.open_page()
    browser.submit("autowriter_secret")
    page = browser.open_page()
    credentials = SECRET.findall(page)[0]
    assert Dashboard(own_site, credentials=credentials).send("GET", "/ping").status_code == 200
    secret = credentials.partition(".")[2]
    assert secret not in browser.open_page()
    assert credentials.partition(".")[0] in browser.open_page()


def test_a_secret_is_rotated_on_the_page(own_site: WordPress, browser: Browser) -> None:
    old = Dashboard(own_site)
    browser.submit("autowriter_secret")
    new = replace(old, credentials=SECRET.findall(browser.open_page())[0])
    assert [each.send("GET", "/ping").status_code for each in (old, new)] == [200, 200]
    page = browser.open_page()
    assert ("Finish rotation" in page, "Rotate secret" in page) == (True, False)
    browser.submit("autowriter_secret")
    assert [each.send("GET", "/ping").status_code for each in (old, new)] == [401, 200]
    assert "Rotate secret" in browser.open_page()


def test_settings_are_saved_and_shown(own_site: WordPress, browser: Browser) -> None:
    browser.submit("autowriter_save", dashboard='https://retoma.example/x/" onfocus="', author="1", rate="7")
    assert browser.read_notice() == "Settings saved."
    page = browser.open_page()
    assert 'value="https://retoma.example/x/%20onfocus=" />' in page
    assert 'value="7"' in page
    browser.submit("autowriter_save", dashboard="javascript:alert(1)", author="1", rate="0")
    assert own_site.run_php("return get_option( 'autowriter_dashboard_url' );") == ""
    assert own_site.run_php("return AutoWriter\\get_requests_per_minute();") == 1


def test_the_page_lists_jobs_with_escaped_texts(own_site: WordPress, browser: Browser) -> None:
    assert "No article has been received yet." in browser.open_page()
    dashboard = Dashboard(own_site)
    publication = make_publication(title="Chá < 5 & > 3", job_id="<script>job</script>")
    post_id = dashboard.publish(publication).json()["post_id"]
    dashboard.mark(publication["idempotency_key"], "Ruim & curto")
    dashboard.publish(make_publication(categories=["Nova"], job_id="<script>job</script>"), fault="exit_before=post")
    own_site.run_php("$wpdb->query( \"UPDATE {$wpdb->prefix}autowriter_events SET status = 'failed' LIMIT 1\" );")
    page = browser.open_page()
    assert "<script>job" not in page
    assert "&lt;script&gt;job" in page
    assert f"post.php?post={post_id}&#038;action=edit" in page
    assert "Rejected in AutoWriter: Ruim &amp; curto · 1 notification was not delivered" in page
    assert ("Saved as a draft" in page, "In progress" in page) == (True, True)


def test_the_page_says_which_images_are_missing(own_site: WordPress, browser: Browser) -> None:
    Dashboard(own_site).publish(make_publication(images=[make_image("capa-1", "featured", data="eA==")]))
    page = browser.open_page()
    assert "Saved, images missing" in page
    assert "The data of image capa-1 is not image/png" in page


def test_the_page_lists_twenty_jobs_at_a_time(own_site: WordPress, browser: Browser) -> None:
    code = """
    $insert = function ( $i ) {
        AutoWriter\\insert_job( array( 'idempotency_key' => hash( 'sha256', $i ), 'job_id' => "job number $i",
            'revision' => 1, 'body_hash' => '' ), 1 );
    };
    array_map( $insert, range( 1, 45 ) );
    """
    own_site.run_php(code)
    pages = [browser.open_page(f"{PAGE}&paged={number}").count("job number") for number in (1, 2, 3)]
    assert pages == [20, 20, 5]


def test_a_rejected_draft_shows_its_note_in_the_list_of_posts(own_site: WordPress, browser: Browser) -> None:
    publication = make_publication()
    Dashboard(own_site).publish(publication)
    Dashboard(own_site).mark(publication["idempotency_key"], "Fora do tema")
    assert "Rejected in AutoWriter: Fora do tema" in browser.open_page("/wp-admin/edit.php")


@pytest.mark.parametrize("action", ["autowriter_save", "autowriter_secret", "autowriter_test"])
def test_an_action_without_its_nonce_is_refused(own_site: WordPress, browser: Browser, action: str) -> None:
    read_options = "return array( get_option( 'autowriter_secrets' ), get_option( 'autowriter_dashboard_url' ) );"
    before = own_site.run_php(read_options)
    answer = browser.http.post("/wp-admin/admin-post.php", data={"action": action, "dashboard": "https://x.example"})
    assert answer.status_code == 403
    assert own_site.run_php(read_options) == before


def test_an_editor_may_neither_see_nor_use_the_page(own_site: WordPress) -> None:
    own_site.run_php("wp_insert_user( array( 'user_login' => 'ed', 'user_pass' => 'ed', 'role' => 'editor' ) );")
    for browser in log_in(own_site, "ed"):
        assert browser.http.get(PAGE).status_code == 403
        answer = browser.http.post("/wp-admin/admin-post.php", data={"action": "autowriter_secret"})
        assert answer.status_code == 403
    assert own_site.run_php("return count( get_option( 'autowriter_secrets' ) );") == 1


async def test_the_connection_is_tested_with_a_signed_ping(own_site: WordPress, browser: Browser) -> None:
    dashboard = Dashboard(own_site)
    await asyncio.to_thread(own_site.run_php, "return AutoWriter\\create_secret();")  # the dashboard has not got it yet
    async with receiver() as received:
        url = f"http://127.0.0.1:{received.port}"
        await asyncio.to_thread(browser.submit, "autowriter_save", dashboard=url, author="1", rate="9")
        await asyncio.to_thread(browser.submit, "autowriter_test")
        assert "accepted its signature" in await asyncio.to_thread(browser.read_notice)
        received.script = [respond_with(401)]
        await asyncio.to_thread(browser.submit, "autowriter_test")
        assert "answered with status 401" in await asyncio.to_thread(browser.read_notice)
    request = received.requests[0]
    assert request.json["kind"] == "ping"
    timestamp, nonce = request.headers["x-autowriter-timestamp"], request.headers["x-autowriter-nonce"]
    expected = sign(dashboard.secret, "POST", "/webhooks/wp-job-updated", timestamp, nonce, request.body)
    assert request.headers["x-autowriter-signature"] == expected


def test_the_connection_test_without_a_dashboard_says_so(browser: Browser) -> None:
    browser.submit("autowriter_test")
    assert browser.read_notice() == "The test failed: the dashboard is not connected."


def test_the_page_is_translated_to_portuguese(own_site: WordPress, browser: Browser) -> None:
    own_site.run_php("update_user_meta( 1, 'locale', 'pt_BR' ); update_option( 'WPLANG', 'pt_BR' );")
    page = browser.open_page()
    assert "Salvar configurações" in page
    assert "Save settings" not in page
