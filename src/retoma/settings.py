"""Settings, by precedence: command-line flags, environment (`RETOMA_...`), `.env`, `retoma.toml`, defaults."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from retoma.masking import register_secret

HEARTBEAT_TIMEOUT = timedelta(seconds=6)
RETENTION_DAYS = 90
RETENTION_FAILED_DAYS = 365
KEY_RETENTION_DAYS = 1095
INBOUND_EVENT_RETENTION_DAYS = 1095
AUDIT_RETENTION_DAYS = 1825


@dataclass(frozen=True)
class RetentionTimes:
    """How long data is kept without a rule; None is for ever. `failed`: runs that failed or completed with errors."""

    ended: timedelta | None = timedelta(days=RETENTION_DAYS)
    failed: timedelta | None = timedelta(days=RETENTION_FAILED_DAYS)
    keys: timedelta | None = timedelta(days=KEY_RETENTION_DAYS)
    audit: timedelta | None = timedelta(days=AUDIT_RETENTION_DAYS)
    inbound: timedelta | None = timedelta(days=INBOUND_EVENT_RETENTION_DAYS)


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

    dev_name: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Your name in the history of runs under `retoma dev`. If unset, your user name on this machine.",
    )

    second_factor: Literal["optional", "administrators", "everyone"] = Field(
        "optional",
        description="Who must enter a code of an authenticator app after the password: `optional` (everybody decides), "
        "`administrators`, or `everyone`.",
    )
    oidc_issuer: str | None = Field(
        None,
        description="Issuer of the OpenID Connect provider for single sign-on, such as https://login.example.com. "
        "Needs RETOMA_PUBLIC_URL and the extra `oidc`.",
    )
    oidc_client_id: str | None = Field(None, description="Id of this server at the provider.")
    oidc_client_secret: SecretStr | None = Field(
        None, description="Secret of this server at the provider. If unset, it is a public client."
    )
    oidc_client_secret_file: Path | None = Field(None, description="File with that secret, instead of the secret.")
    oidc_scopes: str = Field("openid email profile", description="Scopes that the provider is asked for.")
    oidc_name: str = Field(
        "single sign-on", description="Name of the provider on the login page, such as Google or the company's name."
    )
    oidc_create_people: bool = Field(False, description="Create an account at the first login of an unknown person.")
    oidc_role_claim: str | None = Field(
        None,
        description="Claim whose values give roles, such as `groups`. Dots reach into objects. If unset, only "
        "administrators give roles.",
    )
    oidc_roles: dict[str, list[str]] = Field(
        {},
        description='Roles by value of that claim, in JSON: `{"editors": ["reviewer@blog"], "admins": '
        '["administrator"]}`. A role without a tenant is for all tenants.',
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

    smtp_host: str | None = Field(
        None, description="SMTP server for notifications by e-mail. If unset, this worker sends no e-mail."
    )
    smtp_port: int = Field(587, ge=1, le=65535, description="Port of the SMTP server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="Encryption of the connection to the SMTP server: `starttls` (port 587), `tls` (port 465), or "
        "`none`, which is refused together with a password.",
    )
    smtp_username: str | None = Field(None, description="User name at the SMTP server. If unset, no login.")
    smtp_password: SecretStr | None = Field(None, description="Password at the SMTP server.")
    smtp_password_file: Path | None = Field(None, description="File with the password at the SMTP server.")
    smtp_from: str | None = Field(
        None, description="Sender of e-mail, such as `Retoma <retoma@example.com>`. Required with RETOMA_SMTP_HOST."
    )
    connections_key: SecretStr | None = Field(
        None,
        description="Keys that encrypt the secrets of connections: 32 bytes in base64 each, separated by commas. The "
        "first one encrypts, all of them decrypt. If unset, an embedded database uses RETOMA_HOME/connections.key.",
    )
    connections_key_file: Path | None = Field(None, description="File with these keys, instead of the keys.")
    telegram_bot_token: SecretStr | None = Field(
        None, description="Token of the Telegram bot that sends notifications. If unset, this worker sends none."
    )
    telegram_bot_token_file: Path | None = Field(None, description="File with the token of the Telegram bot.")
    telegram_api_url: str = Field(
        "https://api.telegram.org", description="URL of the Telegram Bot API, or of your own server of it."
    )

    retention_days: float = Field(
        RETENTION_DAYS,
        ge=0,
        le=36_500,
        description="Days for which an ended run is kept, unless a rule or its pipeline says otherwise; 0 is for ever.",
    )
    retention_failed_days: float = Field(
        RETENTION_FAILED_DAYS,
        ge=0,
        le=36_500,
        description="The same for runs that failed or completed with errors.",
    )
    key_retention_days: float = Field(
        KEY_RETENTION_DAYS,
        ge=0,
        le=36_500,
        description="Days for which an idempotency key is kept; one of a run that still exists is always kept. 0 is "
        "for ever.",
    )
    audit_retention_days: float = Field(
        AUDIT_RETENTION_DAYS,
        ge=0,
        le=36_500,
        description="Days for which entries of the audit log and the decisions of reviewers are kept; 0 is for ever.",
    )
    inbound_event_retention_days: float = Field(
        INBOUND_EVENT_RETENTION_DAYS,
        ge=0,
        le=36_500,
        description="Days for which an event from another system is kept after it arrived; 0 is for ever.",
    )

    review_target_minutes: float = Field(
        120.0, gt=0, description="Target: minutes from when a review opens until it is decided."
    )
    review_first_pass_target: float = Field(
        0.85, ge=0, le=1, description="Target: share of reviews that are approved without having been sent back."
    )

    @property
    def heartbeat_timeout(self) -> timedelta:
        return timedelta(seconds=self.heartbeat_timeout_seconds)

    @property
    def retention(self) -> RetentionTimes:
        days = (
            *(self.retention_days, self.retention_failed_days, self.key_retention_days),
            *(self.audit_retention_days, self.inbound_event_retention_days),
        )
        return RetentionTimes(*(timedelta(days=each) if each else None for each in days))

    def read_oidc_client_secret(self) -> str | None:
        """Return the secret, from the setting or its file."""
        return _read_secret(self.oidc_client_secret, self.oidc_client_secret_file)

    @model_validator(mode="after")
    def _mask_secrets(self) -> Settings:
        """Mask every secret, also one from `retoma.toml`, which is not in the environment."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                register_secret(f"RETOMA_{name.upper()}", value.get_secret_value())
        return self

    @field_validator("allow_hosts", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    def read_smtp_password(self) -> str | None:
        """Return the password, from the setting or its file."""
        return _read_secret(self.smtp_password, self.smtp_password_file)

    def read_connections_key(self) -> str | None:
        """Return the keys, separated by commas, from the setting or its file."""
        return _read_secret(self.connections_key, self.connections_key_file)

    def read_telegram_bot_token(self) -> str | None:
        """Return the token, from the setting or its file."""
        return _read_secret(self.telegram_bot_token, self.telegram_bot_token_file)

    @field_validator(
        *("database_url", "webhook_secret", "webhook_previous_secret", "dev_name"),
        *("smtp_host", "smtp_username", "smtp_password", "smtp_password_file", "smtp_from"),
        *("telegram_bot_token", "telegram_bot_token_file"),
        *("connections_key", "connections_key_file"),
        mode="before",
    )
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


def _read_secret(value: SecretStr | None, file: Path | None) -> str | None:
    """Return the content of the file, which is then masked wherever it appears, or the value."""
    if file is None:
        return None if value is None else value.get_secret_value()
    secret = file.read_text(encoding="utf-8").strip()
    register_secret(file.name, secret)
    return secret
