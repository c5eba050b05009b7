"""One-time URLs that outside services call when they are done. The token in the URL is the key."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from retoma.client import Client
from retoma.define.codec import LARGEST_RESULT, encode_any, size_of
from retoma.server.callers import public
from retoma.server.door import Door
from retoma.server.edge import too_large
from retoma.server.json_shape import check_json
from retoma.server.problems import documented

router = APIRouter(tags=["callbacks"], dependencies=[public])


@router.post(
    "/callbacks/{token}",
    summary="Say that outside work has ended",
    response_class=Response,
    responses={
        200: {"description": "It is taken as a hint; the outside is asked whether it is so."},
        **documented(404, 410),
    },
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def call_back(request: Request, token: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16,200}$")]) -> Response:
    door: Door = request.app.state.door
    client: Client = request.app.state.client
    await door.check_callback(request, token)
    await client.call_back(token, _said(await request.body()))
    return Response(status_code=200)  # to anything else RunPod calls again


def _said(body: bytes) -> Any:
    """It may become a result, and is no larger than one as it is kept; as it comes, the edge has seen to that."""
    said = _parsed(body)
    if size_of(encode_any(said)) > LARGEST_RESULT:
        raise too_large(LARGEST_RESULT)
    return said


def _parsed(body: bytes) -> Any:
    """JSON, or the text as it is: services send what they like."""
    if not body:
        return None
    check_json(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")
