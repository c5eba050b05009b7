"""E-mail against a real SMTP server: encryption, login, refusals, temporary failures, and crashes."""

from __future__ import annotations

import ssl
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from retoma.encryption import Keyring
from retoma.errors import DefinitionError
from retoma.masking import mask_secrets
from retoma.notifications.sender import open_sender
from retoma.outgoing import HttpClient
from retoma.records import Channel, MessageState
from retoma.settings import Settings
from retoma.store import notifications
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.notifications.builders import add_channels, add_person, list_pending, reviewed, skip_minutes, start_review
from tests.notifications.smtp_server import SENDER, SmtpServer, smtp_server


async def _prepare(sandbox: Sandbox, topic: str = "bonds") -> None:
    await add_channels(sandbox, Channel.EMAIL)
    await add_person(sandbox)
    await start_review(sandbox, topic)


async def _get_state(sandbox: Sandbox) -> tuple[MessageState, int, str | None]:
    (message,) = await sandbox.client.notifications.list_messages()
    return message.state, message.attempt, message.error


async def test_a_mail_is_sent_once(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        for _ in range(3):
            await sandbox.send_notifications(server.settings())
            await skip_minutes(sandbox, 5)
        assert server.recipients == ["ana@example.com"]
        assert (await _get_state(sandbox))[:2] == (MessageState.SENT, 1)
        assert await list_pending(sandbox) == []


async def test_a_mail_has_text_and_html_and_links_to_the_review(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await add_channels(sandbox, Channel.EMAIL)
        await add_person(sandbox)
        review = await start_review(sandbox)
        await sandbox.send_notifications(server.settings())
        (mail,) = server.mails
        assert (mail["To"], mail["From"], mail["Auto-Submitted"]) == ("Ana <ana@example.com>", SENDER, "auto-generated")
        assert mail["Subject"] == "Review waiting: approved_draft · bonds"
        for kind in ("plain", "html"):
            body = mail.get_body((kind,))
            assert body is not None
            assert f"https://retoma.example.com/reviews/{review}" in body.get_content()


async def test_a_mail_is_sent_encrypted_and_after_a_login(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "smtp-password"
    password.write_text("right password\n")
    async with (
        open_sandbox(reviewed()) as sandbox,
        smtp_server(_make_certificate(tmp_path, monkeypatch)) as server,
    ):
        await _prepare(sandbox)
        settings = server.settings(smtp_security="starttls", smtp_username="retoma", smtp_password_file=password)
        await sandbox.send_notifications(settings)
        assert server.logins == [(b"retoma", b"right password")]
        assert server.was_encrypted
        assert len(server.mails) == 1
        assert mask_secrets("it said: right password") == "it said: [smtp-password]"


async def test_a_wrong_password_is_retried_and_not_shown(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_sandbox(reviewed()) as sandbox,
        smtp_server(_make_certificate(tmp_path, monkeypatch)) as server,
    ):
        await _prepare(sandbox)
        settings = server.settings(smtp_security="starttls", smtp_username="retoma", smtp_password="wrong password")
        await sandbox.send_notifications(settings)
        state, _, error = await _get_state(sandbox)
        assert state is MessageState.DUE
        assert "refused the login: 535" in str(error)
        assert "wrong password" not in str(error)


async def test_a_server_with_another_certificate_receives_nothing(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = _make_certificate(tmp_path, monkeypatch)
    monkeypatch.delenv("SSL_CERT_FILE")
    async with open_sandbox(reviewed()) as sandbox, smtp_server(context) as server:
        await _prepare(sandbox)
        settings = server.settings(smtp_security="starttls", smtp_username="retoma", smtp_password="right password")
        await sandbox.send_notifications(settings)
        assert server.logins == []
        assert (await _get_state(sandbox))[0] is MessageState.DUE


async def test_a_temporary_refusal_is_retried(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        server.answers += ["451 try later", "452 too much"]
        for _ in range(4):
            await sandbox.send_notifications(server.settings())
            await skip_minutes(sandbox, 1)
        assert len(server.mails) == 1
        assert (await _get_state(sandbox))[:2] == (MessageState.SENT, 3)


@pytest.mark.parametrize("where", ["recipient", "content"])
async def test_a_permanent_refusal_is_a_dead_letter(open_sandbox: OpenSandbox, where: str) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        if where == "recipient":
            server.refused_recipient = "550 no such mailbox"
        else:
            server.answers.append("554 no spam")
        await sandbox.send_notifications(server.settings())
        state, attempts, error = await _get_state(sandbox)
        assert (state, attempts) == (MessageState.DEAD, 1)
        assert error in ("the SMTP server answered 550 no such mailbox", "the SMTP server answered 554 no spam")


async def test_a_dead_message_can_be_sent_again(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        server.answers.append("554 no spam")
        await sandbox.send_notifications(server.settings())
        assert await sandbox.client.notifications.resend() == 1
        await sandbox.send_notifications(server.settings())
        assert len(server.mails) == 1


async def test_an_unreachable_server_is_retried_until_the_schedule_ends(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await _prepare(sandbox)
        settings = SmtpServer(port=9).settings()
        await sandbox.send_notifications(settings)
        while (next_at := (await sandbox.client.notifications.list_messages())[0].next_at) is not None:
            await sandbox.clock.set(next_at)
            await sandbox.send_notifications(settings)
        state, attempts, error = await _get_state(sandbox)
        assert (state, attempts) == (MessageState.DEAD, 14)
        assert "cannot be used" in str(error)


async def test_the_connection_takes_the_place_of_the_settings_without_a_restart(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_sandbox(reviewed()) as sandbox,
        smtp_server() as ours,
        smtp_server(_make_certificate(tmp_path, monkeypatch)) as connected,
        HttpClient(sandbox.client.guard) as outgoing,
        open_sender(sandbox.app, sandbox.database, ours.settings(), outgoing, sandbox.keyring) as sender,
    ):

        async def send() -> tuple[int, int]:
            await start_review(sandbox)
            await skip_minutes(sandbox, 5)
            await sender.send_due()
            return len(ours.mails), len(connected.mails)

        await _prepare(sandbox)
        assert await send() == (1, 0)
        login = {"port": str(connected.port), "username": "retoma", "password": "right password"}
        await sandbox.client.connections.set(
            "smtp", {"host": "127.0.0.1", "from": "Films <films@example.com>", **login}
        )
        assert await send() == (1, 1)
        assert (connected.mails[0]["From"], connected.was_encrypted) == ("Films <films@example.com>", True)
        await sandbox.client.connections.delete("smtp")
        assert await send() == (2, 1)


async def test_without_settings_a_connection_is_enough(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await sandbox.client.connections.set("smtp", server.connection())
        await sandbox.send_notifications()
        assert [each.channel for each in await sandbox.client.notifications.list_channels()] == [
            Channel.EMAIL,
            Channel.SLACK,
        ]
        await add_person(sandbox)
        await start_review(sandbox)
        await sandbox.send_notifications()
        assert server.recipients == ["ana@example.com"]


@pytest.mark.parametrize("wrong", [{"port": "0"}, {"security": "ssl"}, {"from": "nobody"}, {"password": "readable"}])
async def test_no_mail_is_sent_while_the_connection_cannot_be_used(
    wrong: dict[str, str], open_sandbox: OpenSandbox
) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        await sandbox.client.connections.set("smtp", server.connection() | wrong)
        assert await sandbox.send_notifications(server.settings()) == 0
        await sandbox.client.connections.set("smtp", server.connection() | {"password": ""})
        assert await sandbox.send_notifications(server.settings()) == 1


async def test_a_connection_whose_key_is_missing_is_not_replaced_by_the_settings(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        await sandbox.client.connections.set("smtp", server.connection())
        sandbox.keyring = Keyring.generate()
        assert await sandbox.send_notifications(server.settings()) == 0


async def test_a_crash_between_sending_and_recording_repeats_the_mail_with_its_id(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        settings = server.settings()
        async with (
            HttpClient(sandbox.client.guard) as outgoing,
            open_sender(sandbox.app, sandbox.database, settings, outgoing, sandbox.keyring) as sender,
        ):
            (claimed,) = await sender._claim_due(10)
            events = await notifications.prepare_message(sandbox.database, claimed)
            assert len(events) == 1
            sender._record = _crash  # type: ignore[method-assign,assignment]
            await sender._send(claimed)
        await sandbox.send_notifications(settings)
        assert len(server.mails) == 1, "another sender waits for the lease to end"
        await skip_minutes(sandbox, 2)
        await sandbox.send_notifications(settings)
        first, second = server.mails
        assert first["Message-ID"] == second["Message-ID"] == f"<{claimed.id}@example.com>"
        assert first["Date"] == second["Date"]
        assert (await _get_state(sandbox))[:2] == (MessageState.SENT, 2)


async def test_a_lost_answer_repeats_the_mail_with_its_id(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox, smtp_server() as server:
        await _prepare(sandbox)
        server.drops_after_accepting = True
        for _ in range(2):
            await sandbox.send_notifications(server.settings())
            await skip_minutes(sandbox, 1)
        assert len({mail["Message-ID"] for mail in server.mails}) == 1
        assert len(server.mails) == 2


async def test_the_record_of_a_late_sender_is_refused(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        await _prepare(sandbox)
        lease = timedelta(seconds=60)
        (late,) = await notifications.claim_messages(sandbox.database, [Channel.EMAIL], 1, 1, lease)
        await skip_minutes(sandbox, 2)
        (current,) = await notifications.claim_messages(sandbox.database, [Channel.EMAIL], 1, 1, lease)
        outcome = {"outcome": "delivered", "delay": timedelta(0), "pause": None, "error": None}
        assert await notifications.record_attempt(sandbox.database, late, **outcome) is None  # type: ignore[arg-type]
        assert await notifications.prepare_message(sandbox.database, late) == []
        assert await notifications.record_attempt(sandbox.database, current, **outcome) is MessageState.SENT  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"smtp_from": None},
        {"smtp_from": "nobody"},
        {"smtp_from": SENDER, "smtp_security": "none", "smtp_password": "secret word"},
    ],
)
async def test_wrong_settings_stop_the_worker_at_its_start(
    open_sandbox: OpenSandbox, settings: dict[str, object]
) -> None:
    async with open_sandbox(reviewed()) as sandbox:
        with pytest.raises(DefinitionError, match="RETOMA_SMTP_"):
            await sandbox.send_notifications(Settings(smtp_host="mail.example.com", **settings))  # type: ignore[arg-type]


async def _crash(*_: object) -> None:
    raise SystemError("the process is gone")


def _make_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate of this machine, which this process trusts."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=mail.example.com", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
