"""Files of runs by links that need no key: the signature in a link is the key, until the link expires."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from retoma.client import Client
from retoma.errors import NotFound
from retoma.server.callers import public
from retoma.server.door import Door, address_of
from retoma.server.problems import documented
from retoma.server.routes.files import ANSWERS, Digest
from retoma.server.sending import send_file
from retoma.server.shapes import LARGEST_NUMBER

router = APIRouter(tags=["files"], dependencies=[public])


@router.get(
    "/media/{run:uuid}/{digest}/{name}",
    summary="Fetch a file by a signed link",
    response_class=Response,
    responses={**ANSWERS, **documented(410)},
)
async def fetch(
    request: Request,
    run: UUID,
    digest: Digest,
    name: Annotated[str, Path(max_length=2_000, description="For people; the content alone says which file it is.")],
    expires: Annotated[int, Query(ge=0, le=LARGEST_NUMBER, description="Unix seconds.")],
    signature: Annotated[str, Query(max_length=100)],
    asked: Annotated[str | None, Header(alias="Range", description="A part of it, as `bytes=0-1023`.")] = None,
) -> Response:
    client: Client = request.app.state.client
    door: Door = request.app.state.door
    try:
        await client.check_file_link(run, digest, expires, signature)
    except NotFound:
        # A valid link is served however many wrong ones came from the same address.
        door.check_failures(address_of(request))
        door.note_failure(address_of(request))
        raise
    file = await client.file(run, digest)
    return await send_file(None if client.app is None else client.app.files, file, asked)
