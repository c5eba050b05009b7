"""Imports: the form to upload a file, the preview of its lines, and the progress of each import."""

from __future__ import annotations

from functools import partial
from typing import Literal
from urllib.parse import quote

from starlette.responses import Response

from retoma.errors import TooLarge
from retoma.files import FileStore
from retoma.server import Page, PageContext
from retoma.states import JobState
from retoma_apps.autowriter.operations import imports
from retoma_apps.autowriter.operations.blogs import list_blogs
from retoma_apps.autowriter.operations.imports import InvalidFile, Preview
from retoma_apps.autowriter.pages.common import HOME, get_common_values, get_model, list_writable_themes
from retoma_apps.autowriter.pages.messages import describe_code, describe_line_error
from retoma_apps.autowriter.services import ImportFiles
from retoma_apps.autowriter.steps.csv_file import MAX_BYTES, MAX_ROWS, OPTIONAL_COLUMNS, REQUIRED_COLUMNS
from retoma_apps.autowriter.steps.writing.offline import NeedsLanguageModel

ROUTE = f"{HOME}imports"
PREVIEW = f"{ROUTE}/preview/{{file}}"
IMPORT = f"{ROUTE}/{{import}}"
IMPORTS_PER_PAGE = 20
LINES_PER_PREVIEW = 100
LINES_PER_PAGE = 25
MAX_NAME = 200
UploadError = Literal["missing", "too_large"]


async def show_imports(context: PageContext, status: int = 200, error: UploadError | None = None) -> Response:
    found = await imports.list_import_runs(
        context.client, before=context.get_query_id("before"), limit=IMPORTS_PER_PAGE + 1
    )
    shown = found[:IMPORTS_PER_PAGE]
    return context.render(
        "autowriter_imports.html",
        status,
        error=error,
        blogs=await list_blogs(context.client),
        themes=await list_writable_themes(context),
        imports=[(run, await imports.get_import_progress(context.client, run)) for run in shown],
        next=shown[-1].id if len(found) > IMPORTS_PER_PAGE else None,
        required=REQUIRED_COLUMNS,
        optional=OPTIONAL_COLUMNS,
        max_rows=MAX_ROWS,
        max_size=f"{MAX_BYTES // 1024**2} MB",
        **await get_common_values(context),
    )


async def upload_file(context: PageContext) -> Response:
    """Store the file, and show its preview. Nothing starts."""
    uploaded = context.files.get("file")
    if uploaded is None or not uploaded.content:
        return await show_imports(context, 422, "missing")
    try:
        stored = await imports.store_file(context.client, uploaded.content, uploaded.name[:MAX_NAME])
    except TooLarge:
        return await show_imports(context, 413, "too_large")
    return context.redirect(PREVIEW.format(file=stored.file), name=stored.name)


async def show_preview(context: PageContext, status: int = 200, is_refused: bool = False) -> Response:
    file = context.request.path_params["file"]
    content = await imports.load_stored_file(context.client, _get_files(context), file)
    preview = await imports.preview_file(context.client, await get_model(context), content)
    shown = context.query.get("show") if context.query.get("show") in ("valid", "errors") else None
    rows = _list_rows(preview, shown)
    start = context.get_query_number("from", 0)
    has_unwritable = any(error.code == NeedsLanguageModel.code for error in preview.errors)
    return context.render(
        "autowriter_preview.html",
        status,
        is_refused=is_refused,
        name=_get_name(context),
        action=f"{PREVIEW.format(file=quote(file))}",
        preview=preview,
        themes=await list_writable_themes(context) if has_unwritable else [],
        shown=shown,
        rows=rows[start : start + LINES_PER_PREVIEW],
        start=start,
        count=len(rows),
        step=LINES_PER_PREVIEW,
        describe_error=partial(describe_line_error, context.translator),
        **await get_common_values(context),
    )


async def start_import(context: PageContext) -> Response:
    """Start the import of a file that was previewed, without the lines that have errors if the person says so."""
    content = await imports.load_stored_file(context.client, _get_files(context), context.request.path_params["file"])
    try:
        run = await imports.start_import(
            context.client,
            await get_model(context),
            content,
            name=_get_name(context),
            skip_invalid=bool(context.fields.get("skip_invalid")),
            key=context.idempotency_key,
        )
    except InvalidFile:
        return await show_preview(context, 422, is_refused=True)
    return context.redirect(f"{ROUTE}/{run.id}", "import_started")


async def show_import(context: PageContext) -> Response:
    run = await imports.get_import_run(context.client, context.get_path_id("import"))
    last_event = await context.client.runs.get_last_event_id(run.id)
    assert context.application is not None
    import_files: ImportFiles = context.application.resources["import_files"]
    state = context.get_query_choice("state", JobState)
    progress = await imports.get_import_progress(context.client, run)
    lines = await imports.list_import_lines(
        context.client,
        import_files,
        run,
        states=[state] if state else None,
        after=context.get_query_number("from", -1),
        limit=LINES_PER_PAGE + 1,
    )
    return context.render(
        "autowriter_import.html",
        run=run,
        progress=progress,
        totals=progress.totals,
        cost=await imports.get_import_cost(context.client, run),
        chosen=state,
        lines=lines[:LINES_PER_PAGE],
        next=lines[LINES_PER_PAGE - 1].item.position if len(lines) > LINES_PER_PAGE else None,
        last_event=last_event,
        describe_code=partial(describe_code, context.translator),
        **await get_common_values(context),
    )


async def cancel_import(context: PageContext) -> Response:
    run = await imports.get_import_run(context.client, context.get_path_id("import"))
    await context.client.runs.cancel(run.id, by=context.by, key=context.idempotency_key)
    return context.redirect(f"{ROUTE}/{run.id}", "import_canceled")


def _get_files(context: PageContext) -> FileStore:
    assert context.application is not None
    files = context.application.files
    assert files is not None
    return files


def _get_name(context: PageContext) -> str:
    """Return the name of the file. It is only shown, as anyone can write an address."""
    return (context.fields.get("name") or context.query.get("name") or "articles.csv")[:MAX_NAME]


def _list_rows(preview: Preview, shown: str | None) -> list[imports.PreviewLine]:
    return [each for each in preview.rows if shown is None or (each.error is not None) == (shown == "errors")]


PAGES = (
    Page(ROUTE, show_imports, upload_file, max_upload=MAX_BYTES, submit_scope="runs:write"),
    Page(PREVIEW, show_preview, start_import, submit_scope="runs:write"),
    Page(IMPORT, show_import),
    Page(f"{IMPORT}/cancel", submit=cancel_import, submit_scope="runs:write"),
)
