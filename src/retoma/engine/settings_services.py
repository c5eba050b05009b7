"""Services of the server itself, which settings configure because they serve all tenants: they can only be tested."""

from __future__ import annotations

import socket
from io import BytesIO

from retoma.define.connections import ConnectionType, Values
from retoma.errors import InvalidInput
from retoma.settings import Settings
from retoma.translations import N_

SMTP_TIMEOUT = 20.0  # seconds for each step
TEST_KEY = "connection-test"  # always the same: nothing has to be deleted
_CONTENT = b"Retoma has tested this file store."


async def try_smtp(_: Values) -> str:
    """Connect and log in, without sending a message."""
    import aiosmtplib  # slow to import

    settings = Settings()
    if settings.smtp_host is None:
        raise InvalidInput("no e-mail is sent: set RETOMA_SMTP_HOST and RETOMA_SMTP_FROM")
    password = settings.read_smtp_password()
    if settings.smtp_security == "none" and password is not None:
        raise InvalidInput("RETOMA_SMTP_SECURITY is none, so the password would be readable: use starttls or tls")
    client = aiosmtplib.SMTP(
        hostname=settings.smtp_host,
        port=settings.smtp_port,
        use_tls=settings.smtp_security == "tls",
        start_tls=settings.smtp_security == "starttls",
        username=settings.smtp_username,
        password=password,
        local_hostname=socket.gethostname(),
        timeout=SMTP_TIMEOUT,
    )
    async with client:
        await client.noop()
    login = "" if settings.smtp_username is None else " and accepts the login"
    return f"{settings.smtp_host} port {settings.smtp_port} answers{login}"


async def try_files(_: Values) -> str:
    """Write a small object, and read it back."""
    from retoma.files import FileSettings, create_file_store  # slow to import

    store = create_file_store(FileSettings())
    await store.write_key(TEST_KEY, BytesIO(_CONTENT))
    opened = await store.open_key(TEST_KEY)
    content = b"" if opened is None else b"".join([chunk async for chunk in opened.chunks])
    if content != _CONTENT:
        raise InvalidInput(f"{store.location} did not return what was written: check the bucket and its permissions")
    return f"{store.location} can be written and read"


SETTINGS_SERVICES = {
    each.service: each
    for each in (
        ConnectionType("smtp", N_("E-mail (SMTP)"), (), try_smtp, ("RETOMA_SMTP_HOST", "RETOMA_SMTP_PASSWORD")),
        ConnectionType("files", N_("File storage (S3)"), (), try_files, ("RETOMA_FILES_URL", "AWS_ACCESS_KEY_ID")),
    )
}
