"""The OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from retoma.server.callers import Caller, caller
from retoma.server.openapi import document_of

router = APIRouter(include_in_schema=False)
AnyCaller = Annotated[Caller, caller(None)]


@router.get("/openapi.json")
async def openapi(request: Request, by: AnyCaller) -> JSONResponse:
    document = document_of(request.app)
    _name_pipelines(document, by)
    return JSONResponse(document)


def _name_pipelines(document: dict[str, Any], by: Caller) -> None:
    """Say which pipelines can be started here."""
    if by.client.app is not None:
        for name in ("StartGiven", "BulkGiven"):
            pipeline = document["components"]["schemas"][name]["properties"]["pipeline"]
            pipeline["enum"] = list(by.client.app.pipelines)
