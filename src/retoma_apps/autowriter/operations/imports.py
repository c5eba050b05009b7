"""Import CSV files: check every line, start one run for the file, and follow its articles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from retoma import Client
from retoma.errors import InvalidInput, NotFound
from retoma.files import FileStore
from retoma.records import ItemStatus, ItemTotals, Run
from retoma_apps.autowriter.models import Import, ImportedLine
from retoma_apps.autowriter.operations.blogs import list_known_ids
from retoma_apps.autowriter.pipeline import article_import
from retoma_apps.autowriter.steps.csv_file import LineError, parse_csv

DEFAULT_TENANT = "default"
ITEMS_STEP = "lines_found"


@dataclass(frozen=True)
class Preview:
    """The lines of a file that can become articles, and what is wrong with the others."""

    lines: tuple[ImportedLine, ...]
    errors: tuple[LineError, ...]


class InvalidFile(InvalidInput):
    """The file has errors. `preview` says which."""

    code = "CSV_INVALID"

    def __init__(self, preview: Preview) -> None:
        first = preview.errors[0]
        super().__init__(f"{len(preview.errors)} lines have errors; line {first.line}: {first.message}")
        self.preview = preview


async def preview_file(client: Client, content: bytes, *, tenant: str | None = None) -> Preview:
    """Check a file without starting anything. `tenant` is the only blog that a key may use."""
    parsed = parse_csv(content)
    lines, errors = _check_blogs(parsed.lines, await list_known_ids(client, tenant))
    lines, different = _check_same_articles(lines)
    return Preview(tuple(lines), tuple(sorted([*parsed.errors, *errors, *different], key=lambda error: error.line)))


async def start_import(
    client: Client,
    files: FileStore,
    content: bytes,
    *,
    name: str = "articles.csv",
    skip_invalid: bool = False,
    tenant: str | None = None,
    key: str | None = None,
) -> Run:
    """Store a file and start its import. Raise InvalidFile if a line has errors, unless those are to be skipped."""
    preview = await preview_file(client, content, tenant=tenant)
    if not preview.lines or (preview.errors and not skip_invalid):
        raise InvalidFile(preview)
    file = await files.save(content, name=name)
    skipped = sorted({error.line for error in preview.errors})
    inputs = Import(file=file, skipped_lines=skipped)
    started = await client.start(article_import, inputs, tenant=tenant or DEFAULT_TENANT, key=key)
    return await client.runs.get(started.id)


async def get_import_run(client: Client, import_id: UUID, *, tenant: str | None = None) -> Run:
    run = await client.runs.get(import_id, tenant=tenant)
    if run.pipeline != article_import.name:
        raise NotFound(f"there is no import {import_id}")
    return run


async def get_import_totals(client: Client, run: Run) -> ItemTotals:
    return await client.runs.get_item_totals(run.id, ITEMS_STEP)


async def list_import_lines(client: Client, run: Run, *, after: int = -1, limit: int = 100) -> list[ItemStatus]:
    return await client.runs.list_items(run.id, ITEMS_STEP, after=after, limit=limit)


def _check_blogs(lines: Collection[ImportedLine], known: Collection[str]) -> tuple[list[ImportedLine], list[LineError]]:
    errors = [
        LineError(each.line, "BLOG_NOT_FOUND", f"there is no blog {each.article.blog_id!r}")
        for each in lines
        if each.article.blog_id not in known
    ]
    return [each for each in lines if each.article.blog_id in known], errors


def _check_same_articles(lines: Collection[ImportedLine]) -> tuple[list[ImportedLine], list[LineError]]:
    """Refuse a line that is the article of an earlier one with other optional columns."""
    first: dict[str, ImportedLine] = {}
    errors: list[LineError] = []
    for each in lines:
        earlier = first.setdefault(each.article.identity, each)
        if earlier.article != each.article:
            message = f"this is the article of line {earlier.line} with other optional columns"
            errors.append(LineError(each.line, "CSV_INVALID", message))
    wrong = {error.line for error in errors}
    return [each for each in lines if each.line not in wrong], errors
