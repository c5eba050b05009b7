"""Settings of a WordPress site, for one site or one of several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import GiveUp
from retoma.errors import ProviderRejected
from retoma_apps.providers.account_names import format_variable, is_account
from retoma_apps.providers.http_service import ServiceSettings
from retoma_apps.providers.wordpress.signature import Credentials


class WordPressSettings(ServiceSettings):
    """`secret` may hold two secrets while one replaces the other: the first signs, both are accepted."""

    model_config = SettingsConfigDict(env_prefix="WORDPRESS_")

    site: str = Field("", description="The name of the site; empty if there is only one.")
    secret: SecretStr = SecretStr("")
    secret_file: Path | None = Field(None, description="A file with the secret, in place of the variable.")

    @classmethod
    def for_site(cls, site: str, **values: Any) -> Self:
        """Return settings with the address and the secret of this site; no other secret is ever used for it.

        Raise GiveUp if the site's name cannot be part of a variable's name.
        """
        if not is_account(site):
            raise GiveUp(f"{site[:100]!r} is not a valid name of a site: use Latin letters and digits", "SITE_NAME")
        return cls(**(_load_site(site, values.get("_env_file", ".env")) | values)) if site else cls(**values)

    @classmethod
    def from_connection(cls, site: str, values: Mapping[str, str]) -> Self:
        """Return settings with the values of a connection. The secret is never that of the environment."""
        return cls(**dict[str, Any]({"secret": "", **values, "site": site, "secret_file": None}))

    @property
    def is_configured(self) -> bool:
        return bool(self.base_url and (self.secret.get_secret_value() or self.secret_file))

    def get_variable(self, name: str) -> str:
        """Return the variable of this site: `WORDPRESS_SECRET_RECIPES` for `SECRET` of the site `Recipes`."""
        return format_variable(f"WORDPRESS_{name}", self.site)

    def list_credentials(self) -> list[Credentials]:
        """Return the credentials, the one that signs first. Raise ProviderRejected if there are none, or not valid."""
        texts = self._read_secret().replace(",", " ").split()
        if not texts:
            variable = self.get_variable("SECRET")
            raise ProviderRejected(
                f"publishing to WordPress needs a secret: set {variable} or {variable}_FILE, or enter a connection"
            )
        try:
            return [Credentials.parse(each) for each in texts]
        except ValueError as error:
            raise ProviderRejected(f"{self.get_variable('SECRET')} is {error}") from None

    def _read_secret(self) -> str:
        if self.secret_file is None:
            return self.secret.get_secret_value()
        try:
            return self.secret_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            variable = self.get_variable("SECRET")
            raise ProviderRejected(f"the file of {variable}_FILE cannot be read: {type(error).__name__}") from None


def _load_site(site: str, env_file: Any) -> dict[str, Any]:
    def read(kind: Any, default: Any, variable: str) -> Any:
        return kind, Field(default, validation_alias=variable)

    secret = format_variable("WORDPRESS_SECRET", site)
    fields: dict[str, Any] = {
        "base_url": read(str, "", format_variable("WORDPRESS_BASE_URL", site)),
        "secret": read(SecretStr, SecretStr(""), secret),
        "secret_file": read(Path | None, None, f"{secret}_FILE"),
    }
    found: Any = create_model("SiteSettings", __base__=_SiteSettings, **fields)(_env_file=env_file)
    return {"site": site, **{name: getattr(found, name) for name in fields}}


class _SiteSettings(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")
