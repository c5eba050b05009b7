"""Keys that encrypt the secrets of connections. They are outside the database, so a copy of it reveals no secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from retoma import private_files
from retoma.errors import ConnectionKeyMissing
from retoma.masking import register_secret
from retoma.settings import Settings

KEY_BYTES = 32
NONCE_BYTES = 12  # random, as AES-GCM wants it: 2^32 secrets per key until a collision is a concern
KEY_FILE = "connections.key"
_NO_KEY = (
    "connections need a key: set RETOMA_CONNECTIONS_KEY, or RETOMA_CONNECTIONS_KEY_FILE, to the output of "
    "`openssl rand -base64 32`, the same for every server, worker and command"
)


class Encrypted(NamedTuple):
    """What is stored: the encrypted text, with its nonce before it, and the id of the key."""

    ciphertext: bytes
    key_id: str


class Keyring:
    """Keys by their ids, which are digests. The first one encrypts, all of them decrypt.

    `load` returns the keys as text, separated by commas; it is called when a key is needed, and again for an unknown
    id, so a key that is added to a file is found without a restart.
    """

    def __init__(self, load: Callable[[], str]) -> None:
        self._load = load
        self._keys: dict[str, bytes] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> Keyring:
        """Use the keys of the settings. With the embedded database, a key file in RETOMA_HOME is the default."""
        return cls(lambda: _read_keys(settings))

    @classmethod
    def from_environment(cls) -> Keyring:
        return cls(lambda: _read_keys(Settings()))

    @classmethod
    def generate(cls) -> Keyring:
        """Return a new key that is stored nowhere, for tests."""
        text = generate_key()
        return cls(lambda: text)

    @property
    def current_id(self) -> str:
        """The id of the key that encrypts."""
        self._require()
        return next(iter(self._keys))

    def encrypt(self, text: str, about: bytes) -> Encrypted:
        """Encrypt with the first key. Only with the same `about` it can be decrypted."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import

        key_id = self.current_id
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Encrypted(nonce + AESGCM(self._keys[key_id]).encrypt(nonce, text.encode(), about), key_id)

    def decrypt(self, encrypted: Encrypted, about: bytes) -> str:
        """Raise ConnectionKeyMissing without its key, or if it was changed or is about something else."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._require()
        if encrypted.key_id not in self._keys:
            self._reload()
        if encrypted.key_id not in self._keys:
            raise ConnectionKeyMissing(
                f"a connection is encrypted with the key {encrypted.key_id}, which is not among the keys of this "
                "process: add it to RETOMA_CONNECTIONS_KEY, or enter the connection again"
            )
        nonce, content = encrypted.ciphertext[:NONCE_BYTES], encrypted.ciphertext[NONCE_BYTES:]
        try:
            return AESGCM(self._keys[encrypted.key_id]).decrypt(nonce, content, about).decode()
        except (InvalidTag, ValueError):
            raise ConnectionKeyMissing(
                "a connection cannot be decrypted: its row was changed or moved outside of Retoma; enter it again"
            ) from None

    def _require(self) -> None:
        if not self._keys:
            self._reload()

    def _reload(self) -> None:
        self._keys = parse_keys(self._load())


def generate_key() -> str:
    """Return a new key as text."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def parse_keys(text: str) -> dict[str, bytes]:
    """Return keys by their ids, in order. Raise ConnectionKeyMissing if one is not valid, without showing it."""
    keys: dict[str, bytes] = {}
    for position, part in enumerate((part.strip() for part in text.split(",")), start=1):
        register_secret("RETOMA_CONNECTIONS_KEY", part)
        try:
            key = base64.b64decode(part.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise ConnectionKeyMissing(
                f"key {position} of RETOMA_CONNECTIONS_KEY is not {KEY_BYTES} bytes in base64: create one with "
                "`openssl rand -base64 32`"
            )
        keys[hashlib.sha256(b"retoma connections key" + key).hexdigest()[:16]] = key
    return keys


def _read_keys(settings: Settings) -> str:
    try:
        text = settings.read_connections_key()
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionKeyMissing(
            f"RETOMA_CONNECTIONS_KEY_FILE cannot be read: {type(error).__name__}: check its path and permissions"
        ) from None
    if text:
        return text
    if settings.database_url is not None:
        raise ConnectionKeyMissing(_NO_KEY)
    return _read_or_create(settings.home / KEY_FILE)


def _read_or_create(file: Path) -> str:
    """Return the key of the embedded database. The first process that needs it creates it for all."""
    if not file.exists():
        private_files.create_home(file.parent)
        descriptor, new = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # mode 0600
        with os.fdopen(descriptor, "w") as content:
            content.write(generate_key())
        with suppress(FileExistsError):  # another process was first
            os.link(new, file)
        Path(new).unlink()
    return file.read_text(encoding="ascii").strip()
