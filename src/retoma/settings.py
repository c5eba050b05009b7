"""Settings, by precedence: command-line flags, environment (`RETOMA_...`), `.env`, `retoma.toml`, defaults."""

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

    home: Path = Field(Path(".retoma"), description="Folder of the embedded database and of local files.")
    database_url: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_DATABASE_URL", "DATABASE_URL"),
        description="URL of PostgreSQL 15 or newer, or of a transaction pooler in front of it. If unset, Retoma uses "
        "an embedded server.",
    )
    embedded_port: int | None = Field(
        None, description="TCP port on 127.0.0.1 on which the embedded database listens, in addition to its socket."
    )
    app: str | None = Field(None, description="The application: `module:name`, or a file.")
    heartbeat_timeout_seconds: float = Field(
        HEARTBEAT_TIMEOUT.total_seconds(),
        ge=0.1,
        le=3600,
        description="A worker without a heartbeat for this long is declared dead.",
    )
    drain_seconds: float = Field(
        30.0, ge=0, le=86400, description="How long a worker that is stopping waits for its running jobs."
    )
    host: str = Field("127.0.0.1", description="Address on which the server listens; 0.0.0.0 means all addresses.")
    port: int = Field(
        8765,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("RETOMA_PORT", "PORT"),
        description="Port of the server; 0 picks a free one.",
    )
    rate_limit_per_minute: int = Field(
        12_000,
        ge=1,
        description="Maximum number of requests per minute that one API key may send to one server process.",
    )
    streams_per_key: int = Field(
        1_000, ge=1, description="Maximum number of live streams that one API key may keep open at one server process."
    )
    max_connections: int = Field(
        25_000,
        ge=1,
        description="Maximum number of open connections per server process, if the operating system allows that many.",
    )
    max_connections_per_address: int = Field(
        500,
        ge=1,
        description="Maximum number of connections from one address that have not yet presented a valid key or "
        "session. Beyond this limit, the oldest is closed. Trusted proxies are exempt.",
    )
    trusted_proxies: str | None = Field(
        None,
        description="Comma-separated addresses of proxies in front of the server; their X-Forwarded-For is trusted.",
    )
    public_url: str | None = Field(
        None,
        description="Public URL of the server, such as https://retoma.example.com, for callbacks and links.",
    )
    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Comma-separated hosts, addresses or networks that webhooks and downloads may reach although they "
        "are not public, on any port and over plain http.",
    )

    admin_password_hash: SecretStr | None = Field(
        None, description="Enables login to the pages; created by `retoma password`. If unset, nobody can log in."
    )

    webhook_secret: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_WEBHOOK_SECRET", "WEBHOOK_SECRET"),
        description="Secret that signs every webhook: whsec_ followed by 24 to 64 bytes in base64. If unset, each "
        "tenant has its own secret for each host.",
    )
    webhook_previous_secret: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("RETOMA_WEBHOOK_PREVIOUS_SECRET", "WEBHOOK_PREVIOUS_SECRET"),
        description="Webhook secret before a rotation: as long as it is set, webhooks are signed with both secrets.",
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
