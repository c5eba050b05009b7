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
from retoma.records import ItemStatus, ItemTotals, Run
from retoma.states import JOB_FINAL_STATES, JobState
from retoma.translations import N_
from retoma_apps.autowriter.models import ArticleRequest, Import, ImportedLine
from retoma_apps.autowriter.operations.blogs import list_known_ids
from retoma_apps.autowriter.operations.details import ArticleError, find_error
from retoma_apps.autowriter.operations.overview import ArticleRow, build_rows
from retoma_apps.autowriter.pipeline import article, article_import
from retoma_apps.autowriter.services import ImportFiles
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.csv_file import MAX_BYTES, LineError, parse_csv
from retoma_apps.autowriter.steps.writing.offline import NO_MODEL, find_theme_problem
from retoma_apps.providers.llm import LanguageModel

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
class ImportProgress:
    """The lines of an import by state, and how many of their articles wait for a decision.

    Articles that exist already and were not started by the import are not among those.
    """

    totals: ItemTotals
    in_review: int

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing but decisions is left to do, although the run of the import is running."""
        open_lines = sum(count for state, count in self.totals.states.items() if state not in JOB_FINAL_STATES)
        return 0 < open_lines <= self.in_review


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


async def preview_file(client: Client, model: LanguageModel, content: bytes) -> Preview:
    """Check a file without starting anything."""
    # In a thread: a large file takes seconds, in which the server has to answer other requests.
    return await asyncio.to_thread(_check_lines, content, await list_known_ids(client), model)


async def start_import(
    client: Client,
    model: LanguageModel,
    content: bytes,
    *,
    name: str = "articles.csv",
    skip_invalid: bool = False,
    key: str | None = None,
) -> Run:
    """Store a file and start its import. Raise InvalidFile if a line has errors, unless those are to be skipped."""
    preview = await preview_file(client, model, content)
    if not preview.lines or (preview.errors and not skip_invalid):
        raise InvalidFile(preview)
    file = await client.files.save(content, tenant=None, name=name)
    skipped = sorted({error.line for error in preview.errors})
    inputs = Import(file=file, skipped_lines=skipped)
    owner = client.tenants.choose_owner(each.article.blog_id for each in preview.lines)
    started = await client.start(article_import, inputs, tenant=owner, key=key)
    return await client.runs.get(started.id)


async def store_file(client: Client, content: bytes, name: str) -> File:
    """Store a file that a person uploaded, until they have seen its preview."""
    return await client.files.save(content, tenant=None, name=name, max_bytes=MAX_BYTES)


async def load_stored_file(client: Client, files: FileStore, digest: str) -> bytes:
    """Return the content of a stored file. Raise NotFound if the client may see none that could be an import."""
    file = File(file=digest) if _DIGEST.fullmatch(digest) else None
    is_own = file is not None and not await client.files.list_foreign([file])
    opened = await files.open_file(file) if file is not None and is_own else None
    if opened is None or opened.size > MAX_BYTES:
        raise NotFound(f"there is no uploaded file {digest:.80}")
    return b"".join([chunk async for chunk in opened.chunks])


async def list_import_runs(client: Client, *, before: UUID | None = None, limit: int = 20) -> list[Run]:
    return await client.runs.list(pipeline=article_import.name, before=before, limit=limit)


async def get_import_run(client: Client, import_id: UUID) -> Run:
    run = await client.runs.get(import_id)
    if run.pipeline != article_import.name:
        raise NotFound(f"there is no import {import_id}")
    return run


async def get_import_progress(client: Client, run: Run) -> ImportProgress:
    children = {} if run.is_over else await client.runs.count_children(run.id)
    in_review = sum(count for state, count in children.items() if state.waits_for_people)
    return ImportProgress(await client.runs.get_item_totals(run.id, ITEMS_STEP), in_review)


async def get_import_cost(client: Client, run: Run) -> int:
    """Return the cost of the articles that the import has started, in millionths of a US dollar."""
    return sum(total.micros for total in await client.costs.get_totals(by=(), run=run.id))


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


def _check_lines(content: bytes, known: Collection[str], model: LanguageModel) -> Preview:
    parsed = parse_csv(content)
    lines, errors = _check_blogs(parsed.lines, known)
    lines, different = _check_same_articles(lines)
    lines, unwritable = _check_themes(lines, model)
    wrong = [*parsed.errors, *errors, *different, *unwritable]
    return Preview(tuple(lines), tuple(sorted(wrong, key=lambda error: error.line)))


def _check_blogs(lines: Collection[ImportedLine], known: Collection[str]) -> tuple[list[ImportedLine], list[LineError]]:
    errors = [
        LineError(each.line, "BLOG_NOT_FOUND", N_("there is no blog %(blog)s"), {"blog": repr(each.article.blog_id)})
        for each in lines
        if each.article.blog_id not in known
    ]
    return [each for each in lines if each.article.blog_id in known], errors


def _check_themes(lines: Collection[ImportedLine], model: LanguageModel) -> tuple[list[ImportedLine], list[LineError]]:
    """Refuse a line whose article this model cannot write."""
    problems = {each.line: problem for each in lines if (problem := find_theme_problem(model, each.article))}
    errors = [LineError(line, problem.code, NO_MODEL, problem.values) for line, problem in problems.items()]
    return [each for each in lines if each.line not in problems], errors


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
