"""Export results as JSON, or as CSV that spreadsheets open without running formulas in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from retoma import Client
from retoma.csv_cells import format_csv
from retoma.records import Run
from retoma_apps.classifier.operations.executions import list_documents
from retoma_apps.classifier.schemas import ExportedDocument

Format = Literal["csv", "json"]
MEDIA_TYPES: dict[Format, str] = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
COLUMNS = tuple(ExportedDocument.model_fields)
_PAGE = 500


async def export_documents(client: Client, run: Run, output_format: Format) -> AsyncIterator[bytes]:
    """Yield all documents of an execution, page by page."""
    write = _to_csv if output_format == "csv" else _to_json
    async for part in write(_list_pages(client, run)):
        yield part.encode()


async def _list_pages(client: Client, run: Run) -> AsyncIterator[list[dict[str, Any]]]:
    after: int | None = -1
    while after is not None:
        page, after = await list_documents(client, run, after=after, limit=_PAGE)
        yield page


async def _to_csv(pages: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[str]:
    yield "\ufeff" + format_csv([COLUMNS])  # spreadsheets recognise UTF-8 by its mark
    async for page in pages:
        yield format_csv([_csv_value(row[name]) for name in COLUMNS] for row in page)


async def _to_json(pages: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[str]:
    before = "["
    async for page in pages:
        for row in page:
            yield before + json.dumps({name: row[name] for name in COLUMNS}, ensure_ascii=False)
            before = ",\n"
    yield "]" if before != "[" else "[]"


def _csv_value(value: Any) -> Any:
    return ("sim" if value else "não") if isinstance(value, bool) else value
