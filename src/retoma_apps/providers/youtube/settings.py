"""Settings of YouTube, for one account or one of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, SecretStr, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import GiveUp
from retoma_apps.providers.account_names import format_variable, is_account

CHUNK_MULTIPLE = 262_144
"""Chunk sizes must be multiples of this."""


class YouTubeSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="YOUTUBE_", env_file=".env", extra="ignore")

    client_id: str = ""
    client_secret: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    account: str = Field("", description="The account of the refresh token; empty if there is only one.")
    base_url: str = "https://www.googleapis.com/youtube/v3"
    upload_url: str = "https://www.googleapis.com/upload/youtube/v3"
    token_url: str = "https://oauth2.googleapis.com/token"  # noqa: S105, an address
    consent_url: str = "https://accounts.google.com/o/oauth2/v2/auth"
    timeout_seconds: float = Field(30.0, gt=0, description="Timeout for one request.")
    chunk_seconds: float = Field(600.0, gt=0, description="Timeout for one chunk.")
    chunk_bytes: int = Field(32 * CHUNK_MULTIPLE, ge=CHUNK_MULTIPLE, multiple_of=CHUNK_MULTIPLE)
    max_attempts: int = Field(5, ge=1, description="Consecutive requests to a session without progress.")
    backoff_seconds: float = Field(1.0, ge=0, description="The first delay after a failure; it doubles each time.")

    @classmethod
    def for_account(cls, account: str, **values: Any) -> Self:
        """Return settings with the token of YOUTUBE_REFRESH_TOKEN_<ACCOUNT>; no other is ever used for the account.

        Raise GiveUp if the account's name cannot be part of a variable's name.
        """
        if not is_account(account):
            raise GiveUp(f"{account[:100]!r} is not a valid account name: use Latin letters and digits", "ACCOUNT_NAME")
        if account:
            token = _load_token(account, values.get("_env_file", ".env"))
            values = {"account": account, "refresh_token": token, **values}
        return cls(**values)

    @classmethod
    def from_connection(cls, account: str, values: Mapping[str, str]) -> Self:
        """Return settings with the values of a connection. The token is never that of the environment."""
        return cls(**dict[str, Any]({"refresh_token": "", **values, "account": account}))

    @property
    def token_variable(self) -> str:
        return _token_variable(self.account)


def _load_token(account: str, env_file: Any) -> SecretStr:
    field: Any = (SecretStr, Field(SecretStr(""), validation_alias=_token_variable(account)))
    found: Any = create_model("AccountToken", __base__=_AccountToken, token=field)(_env_file=env_file)
    token: SecretStr = found.token
    return token


class _AccountToken(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")


def _token_variable(account: str) -> str:
    return format_variable("YOUTUBE_REFRESH_TOKEN", account)
