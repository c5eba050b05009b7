"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class ShortFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


AppPlace = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The application: module:name, file.py or file.py:name. Default: RETOMA_APP, or `app` in retoma.toml.",
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="The application, as for `retoma worker`; without one, what a server with this RETOMA_HOME serves.",
        show_default=False,
    ),
]
Listing = Annotated[Format, typer.Option("-o", "--output", help="How to print it.")]
Shape = Annotated[ShortFormat, typer.Option("-o", "--output", help="How to print it.")]
