"""What can be set: flags over environment (`RETOMA_...`) over `.env` over `retoma.toml` over these defaults."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)


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
    silence_seconds: float = Field(
        6.0, ge=0.1, le=3600, description="A worker that has not beaten for so long is dead."
    )
    drain_seconds: float = Field(
        30.0, ge=0, le=86400, description="How long a worker that is asked to stop lets its jobs end."
    )

    @field_validator("database_url", mode="before")
    @classmethod
    def _empty_is_unset(cls, given: object) -> object:
        return None if given == "" else given

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
