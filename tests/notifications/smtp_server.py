"""A real SMTP server on this machine, which keeps what it accepts and refuses what a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from retoma.settings import Settings

SENDER = "Retoma <retoma@example.com>"


@dataclass
class SmtpServer:
    """`answers` are given to the next messages; once used up, messages are accepted."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    refused_recipient: str | None = None
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)
    was_encrypted: bool = False
    drops_after_accepting: bool = False

    def settings(self, **more: Any) -> Settings:
        options = {"smtp_host": "127.0.0.1", "smtp_port": self.port, "smtp_security": "none", "smtp_from": SENDER}
        return Settings(**{**options, "public_url": "https://retoma.example.com", **more})

    def connection(self) -> dict[str, str]:
        return {"host": "127.0.0.1", "port": str(self.port), "security": "none", "from": SENDER}

    async def handle_RCPT(  # noqa: N802  (the name that aiosmtpd calls)
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if self.refused_recipient is not None:
            return self.refused_recipient
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        mail = message_from_bytes(content, policy=default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients += envelope.rcpt_tos
        self.was_encrypted = session.ssl is not None
        if self.drops_after_accepting:
            self.drops_after_accepting = False
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return "250 OK"

    def authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"right password", handled=False)


@asynccontextmanager
async def smtp_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[SmtpServer]:
    """With `tls`, the server requires STARTTLS and then a login."""
    made = SmtpServer()
    protected: dict[str, Any] = (
        {}
        if tls is None
        else {"tls_context": tls, "require_starttls": True, "auth_required": True, "authenticator": made.authenticate}
    )
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(made, hostname="mail.example.com", enable_SMTPUTF8=True, loop=loop, **protected), "127.0.0.1", 0
    )
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
