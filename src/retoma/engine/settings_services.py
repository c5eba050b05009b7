"""Services of the server itself, which serve all tenants. Settings configure them, or for e-mail a connection."""

from __future__ import annotations

import socket
from io import BytesIO

from pydantic import SecretStr

from retoma.define.connections import ConnectionField, ConnectionType, Values
from retoma.errors import InvalidInput
from retoma.settings import Settings
from retoma.translations import N_

SMTP_TIMEOUT = 20.0  # seconds for each step
TEST_KEY = "connection-test"  # always the same: nothing has to be deleted
_CONTENT = b"Retoma has tested this file store."


def use_smtp_connection(settings: Settings, values: Values) -> Settings:
    """Return the settings with the SMTP server of a connection, and nothing of their own one."""
    port, security = values.get("port", "587"), values.get("security", "starttls")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidInput(f"the port of smtp is a number from 1 to 65535, not {port!r:.40}")
    if security not in ("starttls", "tls", "none"):
        raise InvalidInput(f"the security of smtp is starttls, tls or none, not {security!r:.40}")
    own = {name: field.default for name, field in Settings.model_fields.items() if name.startswith("smtp_")}
    password = values.get("password")
    connected = {
        "smtp_host": values["host"],
        "smtp_port": int(port),
        "smtp_security": security,
        "smtp_username": values.get("username"),
        "smtp_password": None if password is None else SecretStr(password),
        "smtp_from": values["from"],
    }
    return settings.model_copy(update={**own, **connected})


async def try_smtp(values: Values) -> str:
    """Connect and log in, without sending a message."""
    import aiosmtplib  # slow to import

    settings = use_smtp_connection(Settings(), values) if values else Settings()
    if settings.smtp_host is None:
        raise InvalidInput("no e-mail is sent: set RETOMA_SMTP_HOST and RETOMA_SMTP_FROM")
    password = settings.read_smtp_password()
    if settings.smtp_security == "none" and password is not None:
        raise InvalidInput("the security is none, so the password would be readable: use starttls or tls")
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


_SMTP_FIELDS = (
    ConnectionField("host", N_("Server"), "host"),
    ConnectionField("port", N_("Port"), required=False, help=N_("Default: 587.")),
    ConnectionField("security", N_("Encryption"), required=False, help=N_("starttls (default), tls or none.")),
    ConnectionField("username", N_("User name"), required=False),
    ConnectionField("password", N_("Password"), "secret", required=False),
    ConnectionField("from", N_("Sender"), help=N_("Such as Retoma <retoma@example.com>.")),
)
SETTINGS_SERVICES = {
    each.service: each
    for each in (
        ConnectionType(
            "smtp",
            N_("E-mail (SMTP)"),
            _SMTP_FIELDS,
            try_smtp,
            ("RETOMA_SMTP_HOST", "RETOMA_SMTP_PASSWORD"),
            for_all_tenants=True,
        ),
        ConnectionType("files", N_("File storage (S3)"), (), try_files, ("RETOMA_FILES_URL", "AWS_ACCESS_KEY_ID")),
    )
}
