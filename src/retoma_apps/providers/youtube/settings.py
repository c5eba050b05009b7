"""YouTube's settings, for one account or for one of several."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Self

from pydantic import Field, SecretStr, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import GiveUp

CHUNK_MULTIPLE = 262_144
"""Chunks are multiples of so many bytes."""


class YouTubeSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="YOUTUBE_", env_file=".env", extra="ignore")

    client_id: str = ""
    client_secret: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    account: str = Field("", description="Whose refresh token it is; empty if there is only one account.")
    base_url: str = "https://www.googleapis.com/youtube/v3"
    upload_url: str = "https://www.googleapis.com/upload/youtube/v3"
    token_url: str = "https://oauth2.googleapis.com/token"  # noqa: S105, an address
    timeout_seconds: float = Field(30.0, gt=0, description="How long one question may take.")
    chunk_seconds: float = Field(600.0, gt=0, description="How long one chunk may take.")
    chunk_bytes: int = Field(32 * CHUNK_MULTIPLE, ge=CHUNK_MULTIPLE, multiple_of=CHUNK_MULTIPLE)
    tries: int = Field(5, ge=1, description="How often a session is asked in a row without having got further.")
    backoff_seconds: float = Field(
        1.0, ge=0, description="The first pause after a failure; each next is twice as long."
    )

    @classmethod
    def for_account(cls, account: str, **values: Any) -> Self:
        """For this account, with the token of YOUTUBE_REFRESH_TOKEN_<ACCOUNT>; no other is ever taken for it.

        Raises GiveUp if no variable can have its name.
        """
        if not is_account(account):
            raise GiveUp(f"{account[:100]!r} cannot be the name of an account: it needs Latin letters", "ACCOUNT_NAME")
        if account:
            token = _load_token(account, values.get("_env_file", ".env"))
            values = {"account": account, "refresh_token": token, **values}
        return cls(**values)

    @property
    def token_variable(self) -> str:
        return _token_variable(self.account)


def is_account(name: str) -> bool:
    """Whether a variable can be named after it and no other: all its letters and digits are Latin. Empty is the only
    account."""
    plain = [letter for letter in unicodedata.normalize("NFKD", name) if letter.isalnum()]
    return not name or (bool(plain) and all(letter.isascii() for letter in plain))


def _load_token(account: str, env_file: Any) -> SecretStr:
    field: Any = (SecretStr, Field(SecretStr(""), validation_alias=_token_variable(account)))
    found: Any = create_model("AccountToken", __base__=_AccountToken, token=field)(_env_file=env_file)
    token: SecretStr = found.token
    return token


class _AccountToken(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")


def _token_variable(account: str) -> str:
    bare = unicodedata.normalize("NFKD", account).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Z0-9]+", "_", bare.upper()).strip("_")
    return f"YOUTUBE_REFRESH_TOKEN_{name}" if name else "YOUTUBE_REFRESH_TOKEN"
