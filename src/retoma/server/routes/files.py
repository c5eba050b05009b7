"""Files that the data of a run refers to."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Path
from starlette.responses import Response

from retoma.server.file_response import send_file
from retoma.server.principal import Principal, require_scope_or_link
from retoma.server.problems import document_binary, document_problems
from retoma.server.routes.runs import get_own_run

router = APIRouter(tags=["files"])
Reader = Annotated[Principal, require_scope_or_link("runs:read", run="run", digest="digest")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The SHA-256 of the content.")]
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: document_binary("The content."),
    206: document_binary("The part that `Range` selects."),
    416: {"description": "The range is outside of the file."},
    **document_problems(404, 410),
}


@router.get(
    "/runs/{run:uuid}/files/{digest}",
    summary="Download a file of a run, with an API key or a signed link",
    response_class=Response,
    responses=_RESPONSES,
)
async def download_run_file(
    run: UUID,
    digest: Digest,
    by: Reader,
    range_header: Annotated[
        str | None, Header(alias="Range", description="A byte range, such as `bytes=0-1023`.")
    ] = None,
) -> Response:
    pipeline = (await get_own_run(by, run)).pipeline
    file = await by.client.files.get(run, digest)
    application = by.client.app.find_owner(pipeline) if by.client.app else None
    return await send_file(application.files if application else None, file, range_header)
