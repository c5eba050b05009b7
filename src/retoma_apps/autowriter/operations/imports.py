"""Import CSV files: check every line, start one run for the file, and follow its articles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from retoma import Client, File
from retoma.errors import InvalidInput, NotFound
from retoma.files import FileStore
from retoma.records import ALL_TENANTS, ItemStatus, ItemTotals, Run
from retoma.states import JobState
from retoma.translations import N_
from retoma_apps.autowriter.models import ArticleRequest, Import, ImportedLine
from retoma_apps.autowriter.operations.blogs import list_known_ids
from retoma_apps.autowriter.operations.details import ArticleError, find_error
from retoma_apps.autowriter.operations.overview import ArticleRow, build_rows
from retoma_apps.autowriter.pipeline import article, article_import
from retoma_apps.autowriter.services import ImportFiles
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.csv_file import MAX_BYTES, LineError, parse_csv

ITEMS_STEP = "lines_found"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class PreviewLine:
    """A line of a file that can become an article, or what is wrong with it."""

    line: int
    imported: ImportedLine | None
    error: LineError | None


@dataclass(frozen=True)
class Preview:
    """The lines of a file that can become articles, and what is wrong with the others."""

    lines: tuple[ImportedLine, ...]
    errors: tuple[LineError, ...]

    @property
    def rows(self) -> list[PreviewLine]:
        """Return all lines in order."""
        valid = (PreviewLine(each.line, each, None) for each in self.lines)
        return sorted([*valid, *(PreviewLine(each.line, None, each) for each in self.errors)], key=lambda row: row.line)


@dataclass(frozen=True)
class LineStatus:
    """A line of an import. `article` is what became of it, once it has been requested, and `error` why it failed."""

    item: ItemStatus
    request: ArticleRequest
    article: ArticleRow | None
    error: ArticleError | None


class InvalidFile(InvalidInput):
    """The file has errors. `preview` says which."""

    code = "CSV_INVALID"

    def __init__(self, preview: Preview) -> None:
        first = preview.errors[0]
        super().__init__(f"{len(preview.errors)} lines have errors; line {first.line}: {first.message}")
        self.preview = preview


async def preview_file(client: Client, content: bytes, *, tenant: str | None = None) -> Preview:
    """Check a file without starting anything. `tenant` is the only blog that a key may use."""
    # In a thread: a large file takes seconds, in which the server has to answer other requests.
    return await asyncio.to_thread(_check_lines, content, await list_known_ids(client, tenant))


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
    started = await client.start(article_import, inputs, tenant=tenant or ALL_TENANTS, key=key)
    return await client.runs.get(started.id)


async def store_file(files: FileStore, content: bytes, name: str) -> File:
    """Store a file that a person uploaded, until they have seen its preview."""
    return await files.save(content, name=name, max_bytes=MAX_BYTES)


async def load_stored_file(files: FileStore, digest: str) -> bytes:
    """Return the content of a stored file. Raise NotFound if there is none that could be an import."""
    opened = await files.open_file(File(file=digest)) if _DIGEST.fullmatch(digest) else None
    if opened is None or opened.size > MAX_BYTES:
        raise NotFound(f"there is no uploaded file {digest:.80}")
    return b"".join([chunk async for chunk in opened.chunks])


async def list_import_runs(client: Client, *, before: UUID | None = None, limit: int = 20) -> list[Run]:
    return await client.runs.list(pipeline=article_import.name, before=before, limit=limit)


async def get_import_run(client: Client, import_id: UUID, *, tenant: str | None = None) -> Run:
    run = await client.runs.get(import_id, tenant=tenant)
    if run.pipeline != article_import.name:
        raise NotFound(f"there is no import {import_id}")
    return run


async def get_import_totals(client: Client, run: Run) -> ItemTotals:
    return await client.runs.get_item_totals(run.id, ITEMS_STEP)


async def list_import_lines(
    client: Client,
    import_files: ImportFiles,
    run: Run,
    *,
    states: Sequence[JobState] | None = None,
    after: int = -1,
    limit: int = 100,
) -> list[LineStatus]:
    """Return lines in order. For the next page pass the last `position` as `after`."""
    requests = await import_files.get_lines(Import.model_validate(run.input).file)
    found = await client.runs.list_items(run.id, ITEMS_STEP, states=states, after=after, limit=limit)
    return [await _find_article(client, each, requests[int(each.item)].article) for each in found]


async def _find_article(client: Client, status: ItemStatus, request: ArticleRequest) -> LineStatus:
    found = await client.runs.find_by_key(request.identity, article, tenant=request.blog_id)
    row = None if found is None else (await build_rows(client, [await client.runs.get(found)]))[0]
    has_failed = row is not None and row.state is ArticleState.FAILED
    error = await find_error(client, row.run, await client.runs.list_jobs(row.run.id)) if row and has_failed else None
    return LineStatus(status, request, row, error)


def _check_lines(content: bytes, known: Collection[str]) -> Preview:
    parsed = parse_csv(content)
    lines, errors = _check_blogs(parsed.lines, known)
    lines, different = _check_same_articles(lines)
    return Preview(tuple(lines), tuple(sorted([*parsed.errors, *errors, *different], key=lambda error: error.line)))


def _check_blogs(lines: Collection[ImportedLine], known: Collection[str]) -> tuple[list[ImportedLine], list[LineError]]:
    errors = [
        LineError(each.line, "BLOG_NOT_FOUND", N_("there is no blog %(blog)s"), {"blog": repr(each.article.blog_id)})
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
            template = N_("this is the article of line %(line)s with other optional columns")
            errors.append(LineError(each.line, "CSV_INVALID", template, {"line": earlier.line}))
    wrong = {error.line for error in errors}
    return [each for each in lines if each.line not in wrong], errors
