"""Arguments and options that commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from retoma.privileges import get_user_name

BY = get_user_name()  # who acts, unless an option says otherwise


class ListFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class DetailFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


AppLocation = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The application: module:name, file.py or file.py:name. Default: RETOMA_APP or `app` in retoma.toml.",
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="The application. Default: RETOMA_APP, `app` in retoma.toml, or the one that a local server serves.",
        show_default=False,
    ),
]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The run's ID, a unique prefix of it, or a part of the run's title."),
]
ActionKey = Annotated[
    str | None,
    typer.Option("--key", help="Idempotency key: repeating the command with it has no further effect."),
]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Your name, recorded with the action.")]
Item = Annotated[str, typer.Option("--item", help="The item, if the step runs once per item.")]
Items = Annotated[list[str] | None, typer.Option("--item", help="Only this item; repeatable.")]
OnlyTenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]
Concurrency = Annotated[int, typer.Option("-c", "--concurrency", min=1, max=10_000, help="Number of concurrent jobs.")]
ListOutput = Annotated[ListFormat, typer.Option("-o", "--output", help="Output format.")]
DetailOutput = Annotated[DetailFormat, typer.Option("-o", "--output", help="Output format.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="At or after this time: 2h (ago), or 2030-01-31T08:00 (local time)."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before this time.")]


def state_option(objects: str, default: str | None = None) -> Any:
    """Return the option `--state` of a command that lists such objects."""
    otherwise = f" Default: {default}." if default else ""
    return typer.Option("--state", metavar="STATE", help=f"Only {objects} in this state; repeatable.{otherwise}")


def limit_option(objects: str, maximum: int = 10_000) -> Any:
    """Return the option `--limit` of a command that lists such objects."""
    return typer.Option("--limit", min=1, max=maximum, help=f"Maximum number of {objects}.")


def json_option(name: str, content: str) -> Any:
    """Return an option that takes such a content as JSON."""
    return typer.Option(name, metavar="JSON", help=f"{content}: JSON, @file, or - for stdin.")
