"""One-time URLs that outside services call when they are done. The token in the URL is the key."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from retoma.client import Client
from retoma.define.codec import MAX_RESULT_BYTES, count_bytes, encode_any
from retoma.server.auth import Auth
from retoma.server.json_limits import check_json_limits
from retoma.server.principal import public
from retoma.server.problems import document_problems
from retoma.server.request_limits import body_too_large

router = APIRouter(tags=["callbacks"], dependencies=[public])


@router.post(
    "/callbacks/{token}",
    summary="Say that outside work has ended",
    response_class=Response,
    responses={
        200: {"description": "It is taken as a hint; the outside is asked whether it is so."},
        **document_problems(404, 410),
    },
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def receive_callback(
    request: Request, token: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16,200}$")]
) -> Response:
    door: Auth = request.app.state.auth
    client: Client = request.app.state.client
    await door.check_callback(request, token)
    await client.external_work.record_callback(token, _read_payload(await request.body()))
    return Response(status_code=200)  # to anything else RunPod calls again


def _read_payload(body: bytes) -> Any:
    """It may become a result, and is no larger than one as it is kept; as it comes, the edge has seen to that."""
    said = _parse_payload(body)
    if count_bytes(encode_any(said)) > MAX_RESULT_BYTES:
        raise body_too_large(MAX_RESULT_BYTES)
    return said


def _parse_payload(body: bytes) -> Any:
    """JSON, or the text as it is: services send what they like."""
    if not body:
        return None
    check_json_limits(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")
