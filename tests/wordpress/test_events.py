"""The plugin notifies the dashboard of what happens to an article: signed, in sequence, and again if it must."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

from tests.receiver import ReceivedRequest, Receiver, respond_with
from tests.wait_timeout import WAIT_TIMEOUT
from tests.wordpress.articles import make_image, make_publication, new_key
from tests.wordpress.dashboard import Dashboard, sign
from tests.wordpress.notifications import LIST_DELIVERIES, connected, deliver, run_cron
from tests.wordpress.polling import wait_until
from tests.wordpress.site import Sites, WordPress

ROUTE = "/webhooks/wp-job-updated"


def list_kinds(received: Receiver) -> list[str]:
    return [each.json["kind"] for each in received.requests]


def is_signed(request: ReceivedRequest, secret: str) -> bool:
    headers = request.headers
    values = headers["x-autowriter-timestamp"], headers["x-autowriter-nonce"], request.body
    return headers["x-autowriter-signature"] == sign(secret, "POST", ROUTE, *values)


async def test_each_step_of_an_article_is_notified_in_sequence(own_site: WordPress) -> None:
    key = new_key()
    images = [make_image(f"{key}-1", "featured"), make_image(f"{key}-2", data="eA==")]
    async with connected(own_site) as received:
        publication = make_publication(key, images=images)
        answer = (await asyncio.to_thread(Dashboard(own_site).publish, publication)).json()
        await run_cron(own_site)
    bodies = [each.json for each in received.requests]
    assert {each.path for each in received.requests} == {f"/retoma{ROUTE}"}
    assert list_kinds(received) == ["media_ok", "media_failed", "seo_applied", "done"]
    assert [each["sequence"] for each in bodies] == [1, 2, 3, 4]
    assert [each["event_id"] for each in bodies] == [each["id"] for each in answer["events"]]
    for each in bodies:
        assert (each["idempotency_key"], each["job_id"], each["revision"]) == (key, publication["job_id"], 1)
        assert (each["site_url"], each["blog_id"]) == (f"{own_site.address}/", 1)
    assert bodies[0]["detail"]["image"] == f"{key}-1"
    assert bodies[1]["detail"]["code"] == "MEDIA_UPLOAD_FAIL"
    assert bodies[3]["detail"] == {"post_id": answer["post_id"], "status": "partial", "warnings": 1}


async def test_notifications_are_signed_like_requests(own_site: WordPress) -> None:
    dashboard = Dashboard(own_site)
    async with connected(own_site) as received:
        await asyncio.to_thread(dashboard.publish)
        await run_cron(own_site)
    for each in received.requests:
        assert each.headers["x-autowriter-key-id"] == dashboard.key_id
        assert is_signed(each, dashboard.secret)
        assert abs(int(each.headers["x-autowriter-timestamp"]) - time.time()) < 60
    assert len({each.headers["x-autowriter-nonce"] for each in received.requests}) == 2


async def test_notifications_are_signed_with_the_secret_that_the_dashboard_uses(own_site: WordPress) -> None:
    old = Dashboard(own_site)
    code = "return AutoWriter\\create_secret();"
    new = replace(old, credentials=await asyncio.to_thread(own_site.run_php, code))
    async with connected(own_site) as received:
        for dashboard in (old, new):
            await asyncio.to_thread(dashboard.publish)
            await deliver(own_site)
    assert [is_signed(each, old.secret) for each in received.requests] == [True, True, False, False]
    assert [is_signed(each, new.secret) for each in received.requests] == [False, False, True, True]


async def test_a_notification_that_fails_is_sent_again_and_those_after_it_wait(own_site: WordPress) -> None:
    async with connected(own_site) as received:
        await asyncio.to_thread(Dashboard(own_site).publish)
        received.script = [respond_with(503)]
        states = await deliver(own_site)
        assert [(each["status"], each["attempts"]) for each in states] == [("pending", "1"), ("pending", "0")]
        assert "503" in states[0]["last_error"]
        await deliver(own_site, 20)
        assert list_kinds(received) == ["seo_applied"]
        states = await deliver(own_site, 40)
    assert list_kinds(received) == ["seo_applied", "seo_applied", "done"]
    assert received.requests[0].json == received.requests[1].json
    assert [each["status"] for each in states] == ["delivered", "delivered"]


async def test_an_article_does_not_wait_for_the_notifications_of_another(own_site: WordPress) -> None:
    async with connected(own_site) as received:
        for title in ("Um", "Dois"):
            await asyncio.to_thread(Dashboard(own_site).publish, make_publication(title=title))
        received.script = [respond_with(500)]
        await deliver(own_site)
    keys = [each.json["idempotency_key"] for each in received.requests]
    assert len(keys) == 3
    assert keys[0] != keys[1] == keys[2]


async def test_delays_grow_until_the_last_attempt(own_site: WordPress) -> None:
    async with connected(own_site) as received:
        await asyncio.to_thread(Dashboard(own_site).publish)
        received.answer = lambda _: respond_with(500)
        delays, later = [], 0
        while (first := (await deliver(own_site, later))[0])["status"] == "pending":
            delays.append(int(first["next_attempt_at"]) - int(time.time()) - later)
            later += delays[-1] + 5
        after = (await deliver(own_site, later))[1]
    assert [round(each, -1) for each in delays] == [30, 120, 600, 1800, 7200, 21600, 43200]
    assert (first["status"], first["attempts"]) == ("failed", "8")
    assert (after["status"], after["attempts"]) == ("pending", "1")


async def test_a_failed_delivery_schedules_the_next_one(own_site: WordPress) -> None:
    code = "return wp_next_scheduled( 'autowriter_deliver_events', array( 'once' ) ) - time();"
    async with connected(own_site) as received:
        await asyncio.to_thread(Dashboard(own_site).publish)
        assert await asyncio.to_thread(own_site.run_php, code) <= 0
        received.answer = lambda _: respond_with(500)
        await run_cron(own_site)
    assert 20 <= await asyncio.to_thread(own_site.run_php, code) <= 30


async def test_an_event_is_due_at_once_although_another_one_is_retried_later(own_site: WordPress) -> None:
    async with connected(own_site) as received:
        await asyncio.to_thread(Dashboard(own_site).publish)
        received.script = [respond_with(500)]
        await run_cron(own_site)
        await asyncio.to_thread(Dashboard(own_site).publish)
        await run_cron(own_site)
    assert len({each.json["idempotency_key"] for each in received.requests}) == 2


async def test_without_a_dashboard_nothing_is_sent_and_the_status_is_kept(own_site: WordPress) -> None:
    publication = make_publication()
    await asyncio.to_thread(Dashboard(own_site).publish, publication)
    states = await deliver(own_site)
    assert states[0]["last_error"] == "the dashboard is not connected"
    answer = await asyncio.to_thread(Dashboard(own_site).get_job, publication["idempotency_key"])
    assert [each["kind"] for each in answer.json()["events"]] == ["seo_applied", "done"]


async def test_a_site_without_visitors_sends_its_notifications_at_once(wordpress_sites: Sites) -> None:
    with wordpress_sites.fresh_site.clone(cron=True) as site:
        async with connected(site) as received:
            await asyncio.to_thread(Dashboard(site).publish)
            await asyncio.to_thread(wait_until, lambda: len(received.requests) == 2, WAIT_TIMEOUT)
    assert list_kinds(received) == ["seo_applied", "done"]


async def test_redirects_are_not_followed(own_site: WordPress) -> None:
    async with connected(own_site) as received:
        await asyncio.to_thread(Dashboard(own_site).publish)
        received.script = [respond_with(302, location="/elsewhere")]
        states = await deliver(own_site)
    assert (len(received.requests), states[0]["status"]) == (1, "pending")


def test_a_notification_has_at_most_64_kib(site: WordPress) -> None:
    code = """
    $detail = wp_json_encode( array( 'message' => $text ) );
    $event  = array( 'event_id' => 'x', 'sequence' => 1, 'idempotency_key' => 'k', 'job_id' => 'j', 'blog_id' => 1,
        'revision' => 1, 'kind' => 'media_failed', 'created_at' => 0, 'detail' => $detail );
    return AutoWriter\\build_event_body( $event );
    """
    long = site.run_php(code, text="é" * 40_000)
    assert len(long) <= 65_536
    assert json.loads(long)["detail"] == {"truncated": True}
    assert json.loads(site.run_php(code, text="é" * 100))["detail"] == {"message": "é" * 100}


def test_long_messages_are_shortened(dashboard: Dashboard) -> None:
    image = make_image("k" * 128, mime="x" * 100)
    answer = dashboard.publish(images=[image | {"key": new_key() + new_key()}]).json()
    assert len(answer["warnings"][0]["message"]) <= 500


async def test_each_site_of_a_network_notifies_its_own_dashboard(own_network: WordPress) -> None:
    async with connected(own_network) as main, connected(own_network, "/viagens/") as travel:
        await asyncio.to_thread(Dashboard(own_network).publish, make_publication(blog_id=3))
        await run_cron(own_network, "/viagens/")
        assert (main.requests, travel.requests) == ([], [])
        await run_cron(own_network)
    assert [each.json["blog_id"] for each in main.requests] == [3, 3]
    assert travel.requests == []


async def test_a_site_of_a_network_does_not_reach_internal_services(own_network: WordPress) -> None:
    async with connected(own_network, "/viagens/") as internal:
        await asyncio.to_thread(Dashboard(own_network, "/viagens/").publish)
        await run_cron(own_network, "/viagens/")
    assert internal.requests == []
    states = await asyncio.to_thread(own_network.run_php, LIST_DELIVERIES)
    assert (states[0]["status"], states[0]["attempts"]) == ("pending", "1")
