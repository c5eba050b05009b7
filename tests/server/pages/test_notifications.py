"""The pages of notifications and of reviewers."""

from __future__ import annotations

import re
from datetime import timedelta

from retoma.records import Channel, Digest, MessageState, NotificationKind
from retoma.store import notifications, people
from tests.notifications.builders import ALL_KINDS
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text
from tests.server.people import ADMINISTRATOR

URL = "https://hooks.example.com/services/a-secret-part"


async def log_in(visitor: Visitor) -> int:
    """Log in with every channel set up; return the number of the person."""
    for channel in Channel:
        await notifications.add_channel(visitor.client.database, channel, ALL_KINDS)
    await visitor.log_in()
    person = await people.find_by_email(visitor.client.database, ADMINISTRATOR)
    assert person is not None
    return person.id


async def test_a_person_chooses_kinds_digest_and_address(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        person = await log_in(visitor)
        page = await visitor.get("/account/notifications")
        form = {"csrf": token_of(page), "channel": "slack", "address": URL, "kind": "run.failed", "digest": "daily"}
        answer = await visitor.post("/account/notifications", form)
        assert answer.status_code == 303, answer.text
        saved = (await visitor.client.notifications.get_settings(person)).get_channel(Channel.SLACK)
        assert (saved.kinds, saved.digest, saved.address) == ((NotificationKind.RUN_FAILED,), Digest.DAILY, URL)
        assert "a-secret-part" not in (await visitor.get("/account/notifications")).text


async def test_an_empty_field_keeps_the_address(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        person = await log_in(visitor)
        await visitor.client.notifications.set_preference(person, Channel.SLACK, kinds=None, digest=None, address=URL)
        form = {"csrf": token_of(await visitor.get("/account/notifications")), "channel": "slack", "default": "on"}
        await visitor.post("/account/notifications", form)
        saved = (await visitor.client.notifications.get_settings(person)).get_channel(Channel.SLACK)
        assert (saved.kinds, saved.address) == (None, URL)


async def test_a_private_url_is_refused_with_the_reason(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await log_in(visitor)
        token = token_of(await visitor.get("/account/notifications"))
        form = {"csrf": token, "channel": "slack", "address": "https://10.0.0.1/x", "digest": "daily"}
        answer = await visitor.post("/account/notifications", form)
        assert answer.status_code == 422
        assert "not a public address" in visible_text(answer)


async def test_the_test_button_sends_once_and_shows_the_outcome(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        person = await log_in(visitor)
        form = {"csrf": token_of(await visitor.get("/account/notifications")), "channel": "email"}
        assert (await visitor.post("/account/notifications/test", form)).status_code == 303
        assert (await visitor.post("/account/notifications/test", form)).status_code == 409
        claimed = await notifications.claim_messages(visitor.client.database, [Channel.EMAIL], 5, 5, _minute())
        assert [each.person for each in claimed] == [person]
        assert "being sent" in visible_text(await visitor.get("/account/notifications"))


async def test_opening_the_pages_changes_nothing(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        person = await log_in(visitor)
        before = await visitor.client.notifications.get_settings(person)
        for path in ("/account/notifications", "/notifications", "/reviewers"):
            assert (await visitor.get(path)).status_code == 200
        assert (await visitor.get("/account/notifications/test?channel=email")).status_code == 405
        assert await visitor.client.notifications.get_settings(person) == before
        assert await visitor.client.notifications.list_messages() == []


async def test_quiet_hours_are_saved_and_shown(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await log_in(visitor)
        token = token_of(await visitor.get("/account/notifications"))
        path = "/account/notifications/quiet-hours"
        assert (await visitor.post(path, {"csrf": token, "from": "22:00", "until": "25:00"})).status_code == 422
        await visitor.post(path, {"csrf": token, "from": "22:00", "until": "07:30"})
        page = await visitor.get("/account/notifications")
        assert re.findall(r'type="time"[^>]* value="([^"]*)"', page.text) == ["22:00", "07:30"]


async def test_administrators_set_defaults_and_resend_dead_messages(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        person, client = await log_in(visitor), visitor.client
        token = token_of(await visitor.get("/notifications"))
        await visitor.post("/notifications", {"csrf": token, "channel": "email", "kind": "budget", "digest": "hourly"})
        (default,) = [each for each in await client.notifications.list_channels() if each.channel == "email"]
        assert (default.kinds, default.digest) == ((NotificationKind.BUDGET,), Digest.HOURLY)
        await client.notifications.send_test(person, Channel.EMAIL)
        (claimed,) = await notifications.claim_messages(client.database, [Channel.EMAIL], 5, 5, _minute())
        await notifications.record_attempt(
            client.database, claimed, outcome="dead", delay=_minute(), pause=None, error="<b>no</b>"
        )
        page = await visitor.get("/notifications")
        assert "&lt;b&gt;no&lt;/b&gt;" in page.text
        await visitor.post(f"/notifications/{claimed.id}/resend", {"csrf": token})
        (message,) = await client.notifications.list_messages()
        assert message.state is MessageState.DUE


async def test_reviewers_are_shown_against_the_targets(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        empty = visible_text(await visitor.get("/reviewers"))
        assert "Nobody has decided anything yet" in empty
        assert "target: 2 hr" in empty
        for bad in ("?days=x", "?days=30"):
            assert (await visitor.get(f"/reviewers{bad}")).status_code == 200


def _minute() -> timedelta:
    return timedelta(minutes=1)
