"""Arguments and options that commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


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
ListOutput = Annotated[ListFormat, typer.Option("-o", "--output", help="Output format.")]
DetailOutput = Annotated[DetailFormat, typer.Option("-o", "--output", help="Output format.")]
