"""`retoma config show`: list every setting and the source of its value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from pydantic import AliasChoices, SecretStr
from pydantic_settings import DotEnvSettingsSource, EnvSettingsSource, TomlConfigSettingsSource

from retoma.cli import printing
from retoma.cli.command_setup import read_settings
from retoma.cli.database_urls import mask_password
from retoma.cli.options import ListFormat, ListOutput
from retoma.cli.printing import Column
from retoma.settings import Settings

config = typer.Typer(name="config", no_args_is_help=True, help="Show the settings.")
SETTINGS_FROM_FLAGS: set[str] = set()  # names of settings set by options of this command
_COLUMNS = [
    Column("setting"),
    Column("value", formatter=lambda value: printing.format_value(value, 120)),
    Column("from"),
    Column("meaning"),
]


@config.callback()
def group() -> None:
    """Show the settings."""


@config.command()
def show(output: ListOutput = ListFormat.TABLE) -> None:
    """Show each setting with its value and source. Secrets are masked.

    Precedence: command-line options, environment variables, .env, retoma.toml.
    """
    settings = read_settings()
    origins = _find_sources()
    rows = [
        {
            "setting": next(_list_aliases(name), f"RETOMA_{name.upper()}"),
            "value": _mask_value(getattr(settings, name)),
            "from": origins.get(name, "default"),
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    printing.print_rows(rows, _COLUMNS, output, "")


def _find_sources() -> dict[str, str]:
    """Return the source of each setting that is set. Later sources take precedence."""
    sources = [
        ("retoma.toml", TomlConfigSettingsSource(Settings)()),
        (".env", DotEnvSettingsSource(Settings)()),
        ("environment", EnvSettingsSource(Settings)()),
        ("flag", dict.fromkeys(SETTINGS_FROM_FLAGS)),
    ]
    return {
        name: source for source, values in sources for name in Settings.model_fields if _list_names(name) & set(values)
    }


def _list_names(name: str) -> set[str]:
    return {name, *_list_aliases(name)}


def _list_aliases(name: str) -> Iterator[str]:
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        yield from (choice for choice in alias.choices if isinstance(choice, str))


def _mask_value(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return mask_password(value.get_secret_value())
    return value if value is None or isinstance(value, int | float) else str(value)
