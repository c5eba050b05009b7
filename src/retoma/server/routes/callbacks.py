"""One-time URLs that external services call when their work is done. The token in the URL authenticates."""

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
    summary="Report that external work has ended",
    response_class=Response,
    responses={
        200: {"description": "The callback was recorded. Retoma polls the external service to confirm it."},
        **document_problems(404, 410),
    },
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def receive_callback(
    request: Request, token: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{16,200}$")]
) -> Response:
    auth: Auth = request.app.state.auth
    client: Client = request.app.state.client
    await auth.check_callback(request, token)
    await client.external_work.record_callback(token, _read_payload(await request.body()))
    return Response(status_code=200)  # RunPod repeats the call after any other status


def _read_payload(body: bytes) -> Any:
    """Return the payload. It may become a result, so its encoded form has the size limit of a result.

    The raw body was checked by `RequestLimits`.
    """
    payload = _parse_payload(body)
    if count_bytes(encode_any(payload)) > MAX_RESULT_BYTES:
        raise body_too_large(MAX_RESULT_BYTES)
    return payload


def _parse_payload(body: bytes) -> Any:
    """Return the parsed JSON, or the raw text, because not all services send JSON."""
    if not body:
        return None
    check_json_limits(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")
