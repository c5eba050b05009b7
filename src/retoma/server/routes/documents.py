"""The OpenAPI document, and in development a page to read it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from retoma.server.callers import Caller, caller

router = APIRouter(include_in_schema=False)
for_people = APIRouter(include_in_schema=False)
AnyCaller = Annotated[Caller, caller(None)]


@router.get("/openapi.json")
async def openapi(request: Request, by: AnyCaller) -> JSONResponse:
    document: dict[str, Any] = request.app.openapi()
    _name_pipelines(document, by)
    return JSONResponse(document)


@for_people.get("/docs")
async def docs(request: Request, by: AnyCaller) -> HTMLResponse:
    return get_swagger_ui_html(openapi_url="/api/v1/openapi.json", title=request.app.title)


def _name_pipelines(document: dict[str, Any], by: Caller) -> None:
    """Say which pipelines can be started here."""
    if by.client.app is not None:
        for name in ("StartGiven", "BulkGiven"):
            pipeline = document["components"]["schemas"][name]["properties"]["pipeline"]
            pipeline["enum"] = list(by.client.app.pipelines)
