"""Slack-compatible webhooks and Telegram, against servers that speak their formats, including their failures."""

from __future__ import annotations

import html
import json
import re
from datetime import time

import pytest

from retoma.errors import InvalidInput, UnsafeUrl
from retoma.notifications.chat_channels import format_telegram
from retoma.notifications.content import Content, Line
from retoma.outgoing import Guard
from retoma.records import Channel, MessageState, NotificationMessage
from retoma.settings import Settings
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.notifications.builders import add_channels, add_person, reviewed, skip_minutes, start_review, use_channel
from tests.receiver import Receiver, Responder, hang_up, receiver, respond_with

TOKEN = "123456:a-secret-token-of-a-bot"


def answer(status: int, **fields: object) -> Responder:
    """An answer of the Bot API."""
    return respond_with(status, json.dumps({"ok": status == 200, **fields}).encode(), content_type="application/json")


def with_telegram(server: Receiver) -> Settings:
    return Settings(
        public_url="https://retoma.example.com",
        telegram_bot_token=TOKEN,
        telegram_api_url=server.url.removesuffix("/hook"),
    )


async def _prepare(sandbox: Sandbox, channel: Channel, address: str, topic: str = "bonds") -> int:
    await add_channels(sandbox, channel)
    person = await add_person(sandbox)
    await use_channel(sandbox, person, channel, address)
    await start_review(sandbox, topic)
    return person


async def _get_message(sandbox: Sandbox) -> NotificationMessage:
    (message,) = await sandbox.client.notifications.list_messages()
    return message


async def test_slack_receives_an_escaped_text_with_a_link(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(respond_with(200, b"ok")) as slack:
        await _prepare(sandbox, Channel.SLACK, slack.url, topic="<!channel> & <https://evil.example|click>")
        await sandbox.send_notifications(Settings(public_url="https://retoma.example.com"))
        (request,) = slack.requests
        text = request.json["text"]
        assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt;" in text
        assert "<https://retoma.example.com/reviews/" in text
        assert (await _get_message(sandbox)).state is MessageState.SENT


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"no_service"), (410, b"channel_is_archived"), (403, b"action_prohibited")]
)
async def test_a_slack_webhook_that_is_gone_is_disabled(open_sandbox: OpenSandbox, status: int, body: bytes) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(respond_with(status, body)) as slack:
        person = await _prepare(sandbox, Channel.SLACK, slack.url)
        await sandbox.send_notifications()
        channel = (await sandbox.client.notifications.get_settings(person)).get_channel(Channel.SLACK)
        assert channel.disabled_because == f"the webhook answered {status} {body.decode()}"
        await start_review(sandbox, "another")
        await skip_minutes(sandbox, 5)
        await sandbox.send_notifications()
        assert len(slack.requests) == 1


async def test_a_saved_address_works_again_after_it_was_disabled(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(respond_with(404, b"no_service")) as slack:
        person = await _prepare(sandbox, Channel.SLACK, slack.url)
        await sandbox.send_notifications()
        await use_channel(sandbox, person, Channel.SLACK, slack.url)
        await sandbox.client.notifications.send_test(person, Channel.SLACK)
        await sandbox.send_notifications()
        assert len(slack.requests) == 2


async def test_slack_that_is_busy_is_left_alone_as_long_as_it_asks(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(respond_with(429, b"slow", retry_after="90")) as slack:
        await _prepare(sandbox, Channel.SLACK, slack.url)
        await sandbox.send_notifications()
        await skip_minutes(sandbox, 1)
        await sandbox.send_notifications()
        assert len(slack.requests) == 1
        await skip_minutes(sandbox, 1)
        await sandbox.send_notifications()
        assert len(slack.requests) == 2


async def test_a_lost_connection_to_slack_is_retried(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(hang_up(), respond_with(500)) as slack:
        await _prepare(sandbox, Channel.SLACK, slack.url)
        for _ in range(3):
            await sandbox.send_notifications()
            await skip_minutes(sandbox, 1)
        assert (await _get_message(sandbox)).attempt == 3
        assert (await _get_message(sandbox)).state is MessageState.SENT


async def test_the_url_of_slack_is_not_in_errors(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver() as slack:
        slack.answer = lambda request: respond_with(500, f"cannot post to {slack.url}".encode())
        await _prepare(sandbox, Channel.SLACK, slack.url)
        await sandbox.send_notifications()
        assert "cannot post to [URL]" in str((await _get_message(sandbox)).error)


async def test_a_private_address_is_refused_as_a_slack_webhook(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await add_channels(sandbox, Channel.SLACK)
        person = await add_person(sandbox)
        sandbox.client._core.guard = Guard()
        with pytest.raises(UnsafeUrl):
            await use_channel(sandbox, person, Channel.SLACK, "https://169.254.169.254/latest")


async def test_telegram_receives_an_escaped_text_with_a_link(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(answer(200, result={})) as telegram:
        await _prepare(sandbox, Channel.TELEGRAM, "-1001234", topic="</b><a href='https://evil.example'>x</a>")
        await sandbox.send_notifications(with_telegram(telegram))
        (request,) = telegram.requests
        assert request.path == f"/bot{TOKEN}/sendMessage"
        assert request.json["chat_id"] == "-1001234"
        assert request.json["parse_mode"] == "HTML"
        assert "&lt;/b&gt;&lt;a href=&#39;https://evil.example&#39;&gt;x&lt;/a&gt;" in request.json["text"]
        assert '<a href="https://retoma.example.com/reviews/' in request.json["text"]


async def test_a_limit_of_telegram_is_obeyed(open_sandbox: OpenSandbox) -> None:
    busy = answer(429, error_code=429, description="Too Many Requests", parameters={"retry_after": 300})
    async with open_sandbox(reviewed()) as sandbox, receiver(busy, answer(200, result={})) as telegram:
        await _prepare(sandbox, Channel.TELEGRAM, "1234")
        for minutes in (4, 2):
            await sandbox.send_notifications(with_telegram(telegram))
            assert len(telegram.requests) == 1
            await skip_minutes(sandbox, minutes)
        await sandbox.send_notifications(with_telegram(telegram))
        assert len(telegram.requests) == 2
        assert (await _get_message(sandbox)).state is MessageState.SENT


@pytest.mark.parametrize(
    ("status", "description"),
    [(400, "Bad Request: chat not found"), (403, "Forbidden: bot was blocked by the user")],
)
async def test_a_chat_that_is_gone_is_disabled(open_sandbox: OpenSandbox, status: int, description: str) -> None:
    gone = answer(status, error_code=status, description=description)
    async with open_sandbox(reviewed()) as sandbox, receiver(gone) as telegram:
        person = await _prepare(sandbox, Channel.TELEGRAM, "1234")
        await sandbox.send_notifications(with_telegram(telegram))
        channel = (await sandbox.client.notifications.get_settings(person)).get_channel(Channel.TELEGRAM)
        assert channel.disabled_because == f"Telegram answered {status} {description}"


async def test_a_text_that_telegram_does_not_take_says_nothing_about_the_chat(open_sandbox: OpenSandbox) -> None:
    refused = answer(400, error_code=400, description="Bad Request: can't parse entities: unsupported start tag")
    async with open_sandbox(reviewed()) as sandbox, receiver(refused) as telegram:
        person = await _prepare(sandbox, Channel.TELEGRAM, "1234")
        await sandbox.send_notifications(with_telegram(telegram))
        channel = (await sandbox.client.notifications.get_settings(person)).get_channel(Channel.TELEGRAM)
        assert channel.disabled_because is None
        assert (await _get_message(sandbox)).state is MessageState.DEAD


def test_ten_long_lines_are_cut_by_length_as_telegram_counts() -> None:
    line = Line(
        "\N{BELL}" * 120, tuple("\N{PARTY POPPER}" * 120 for _ in range(4)), "https://retoma.example.com/reviews/1"
    )
    content = Content("14", (line,) * 14, "", None, "https://retoma.example.com/", "en")
    text = html.unescape(re.sub("<[^>]+>", "", format_telegram(content)))
    assert len(text.encode("utf-16-le")) // 2 <= 4_096
    lines = text.count("\N{BELL}") // 120
    assert f"+ {14 - lines}: https://retoma.example.com/" in text
    assert lines >= 3


@pytest.mark.parametrize(
    "failure", [answer(401, description="Unauthorized"), respond_with(502, b"<html>"), respond_with(200, b"[]")]
)
async def test_other_failures_of_telegram_are_retried(open_sandbox: OpenSandbox, failure: Responder) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(failure, answer(200, result={})) as telegram:
        await _prepare(sandbox, Channel.TELEGRAM, "1234")
        for _ in range(2):
            await sandbox.send_notifications(with_telegram(telegram))
            await skip_minutes(sandbox, 1)
        assert (await _get_message(sandbox)).state is MessageState.SENT


async def test_the_token_is_not_in_errors(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(hang_up()) as telegram:
        await _prepare(sandbox, Channel.TELEGRAM, "1234")
        await sandbox.send_notifications(with_telegram(telegram))
        message = await _get_message(sandbox)
        assert message.error is not None
        assert TOKEN not in message.error


async def test_a_chat_is_a_number(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        person = await add_person(sandbox)
        with pytest.raises(InvalidInput, match="must be a number"):
            await use_channel(sandbox, person, Channel.TELEGRAM, "../bot1/logOut")


async def test_a_long_digest_fits_into_a_message_of_telegram(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(answer(200, result={})) as telegram:
        await add_channels(sandbox, Channel.TELEGRAM)
        await use_channel(sandbox, await add_person(sandbox), Channel.TELEGRAM, "1234")
        for number in range(14):
            await start_review(sandbox, f"{number} " + "long " * 50)
        await sandbox.send_notifications(with_telegram(telegram))
        text = telegram.requests[0].json["text"]
        assert "+ 4: https://retoma.example.com/" in text
        assert len(text) < 4096


async def test_one_test_at_a_time_is_sent(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, receiver(answer(200, result={})) as telegram:
        await add_channels(sandbox, Channel.TELEGRAM)
        person = await add_person(sandbox)
        await sandbox.client.notifications.set_quiet_hours(person, time(11), time(13))
        await use_channel(sandbox, person, Channel.TELEGRAM, "1234")
        await sandbox.client.notifications.send_test(person, Channel.TELEGRAM)
        with pytest.raises(Exception, match="wait until the last test"):
            await sandbox.client.notifications.send_test(person, Channel.TELEGRAM)
        await sandbox.send_notifications(with_telegram(telegram))
        assert "Test notification" in telegram.requests[0].json["text"]
