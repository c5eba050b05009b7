"""What can be set: flags over environment (`RETOMA_...`) over `.env` over `retoma.toml` over these defaults."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

HEARTBEAT_TIMEOUT = timedelta(seconds=6)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="RETOMA_", env_file=".env", extra="ignore", populate_by_name=True, toml_file="retoma.toml"
    )

    home: Path = Field(Path(".retoma"), description="Where the embedded database and local files live.")
    database_url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_DATABASE_URL", "DATABASE_URL"),
        description="A PostgreSQL 15 or newer, or a transaction pooler before one. Unset: an embedded one.",
    )
    embedded_port: int | None = Field(
        None, description="Let the embedded database also listen on this port of 127.0.0.1."
    )
    app: str | None = Field(None, description="Where the application is: `module:name`, or a file.")
    heartbeat_timeout_seconds: float = Field(
        HEARTBEAT_TIMEOUT.total_seconds(),
        ge=0.1,
        le=3600,
        description="A worker that has not beaten for so long is dead.",
    )
    drain_seconds: float = Field(
        30.0, ge=0, le=86400, description="How long a worker that is asked to stop lets its jobs end."
    )
    host: str = Field("127.0.0.1", description="Where the server listens; 0.0.0.0 is every address of this machine.")
    port: int = Field(
        8765,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("RETOMA_PORT", "PORT"),
        description="The port of the server; 0 takes one that is free.",
    )
    rate_limit_per_minute: int = Field(
        12_000, ge=1, description="How many requests a minute one API key may make of one server process."
    )
    streams_per_key: int = Field(
        1_000, ge=1, description="How many live streams one API key may have open at one server process."
    )
    max_connections: int = Field(
        25_000, ge=1, description="How many connections one server process has open, if the system allows as many."
    )
    max_connections_per_address: int = Field(
        500,
        ge=1,
        description="How many connections from one address have shown no valid key or session yet; with more, the "
        "oldest of them is closed. Trusted proxies have no such limit.",
    )
    trusted_proxies: str | None = Field(
        None,
        description="Addresses, with commas between, of proxies before the server whose X-Forwarded-For is believed.",
    )
    public_url: str | None = Field(
        None,
        description="Where the server is reached from outside, as https://retoma.example.com: for callbacks, links.",
    )
    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Hosts, addresses or networks, with commas between, that webhooks and downloads may reach though "
        "they are not public. They may have any port and plain http.",
    )

    admin_password_hash: SecretStr | None = Field(
        None, description="Lets people log in to the pages: `retoma password` makes it. Unset: nobody can."
    )

    webhook_secret: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_WEBHOOK_SECRET", "WEBHOOK_SECRET"),
        description="Signs every webhook: whsec_ and the base64 of 24 to 64 bytes. Unset: each tenant has a secret of "
        "its own for each host.",
    )
    webhook_previous_secret: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_WEBHOOK_PREVIOUS_SECRET", "WEBHOOK_PREVIOUS_SECRET"),
        description="The webhook secret before a rotation: it signs beside the new one for as long as it is set.",
    )

    @property
    def heartbeat_timeout(self) -> timedelta:
        return timedelta(seconds=self.heartbeat_timeout_seconds)

    @field_validator("allow_hosts", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("database_url", "webhook_secret", "webhook_previous_secret", "admin_password_hash", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)
