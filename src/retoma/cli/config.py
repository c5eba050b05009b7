"""`retoma config show`: every setting, and where its value came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from pydantic import AliasChoices, SecretStr
from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource, TomlConfigSettingsSource

from retoma.cli import output
from retoma.cli.addresses import masked
from retoma.cli.options import Format, Listing
from retoma.cli.output import Column
from retoma.cli.session import read_settings
from retoma.settings import Settings

config = typer.Typer(no_args_is_help=True, help="The settings.")
FLAGS: set[str] = set()  # names of settings that were given as flags of this command
_COLUMNS = [
    Column("setting"),
    Column("value", shown=lambda given: output.value(given, 120)),
    Column("from"),
    Column("meaning"),
]


@config.callback()
def group() -> None:
    """The settings."""


@config.command()
def show(how: Listing = Format.TABLE) -> None:
    """Each setting, its value with secrets masked, and where it came from.

    A flag counts before the environment, that before .env, that before retoma.toml.
    """
    settings = read_settings()
    origins = _origins()
    rows = [
        {
            "setting": _variable(name),
            "value": _shown(getattr(settings, name)),
            "from": origins.get(name, "default"),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    output.emit(rows, _COLUMNS, how, "")


def _origins() -> dict[str, str]:
    """Where each setting that is set came from; the strongest source is asked last."""
    sources = [
        ("retoma.toml", TomlConfigSettingsSource(Settings)()),
        (".env", DotEnvSettingsSource(Settings)()),
        ("environment", EnvSettingsSource(Settings)()),
        ("flag", dict.fromkeys(FLAGS)),
    ]
    return {name: source for source, given in sources for name in Settings.model_fields if _names(name) & set(given)}


def _names(name: str) -> set[str]:
    return {name, *_aliases(name)}


def _aliases(name: str) -> Iterator[str]:
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        yield from (choice for choice in alias.choices if isinstance(choice, str))


def _variable(name: str) -> str:
    return next(_aliases(name), f"RETOMA_{name.upper()}")


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return masked(value.get_secret_value())
    return value if value is None or isinstance(value, int | float) else str(value)
