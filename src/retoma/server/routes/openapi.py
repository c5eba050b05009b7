"""The OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from retoma.server.openapi import build_document
from retoma.server.principal import Principal, require_scope

router = APIRouter(include_in_schema=False)
AnyKey = Annotated[Principal, require_scope(None)]


@router.get("/openapi.json")
async def get_openapi(request: Request, by: AnyKey) -> JSONResponse:
    document = build_document(request.app)
    _add_pipeline_names(document, by)
    return JSONResponse(document)


def _add_pipeline_names(document: dict[str, Any], by: Principal) -> None:
    """List the pipelines of this server as the allowed values of `pipeline`."""
    if by.client.app is not None:
        for name in ("StartRequest", "BulkStartRequest"):
            pipeline = document["components"]["schemas"][name]["properties"]["pipeline"]
            pipeline["enum"] = list(by.client.app.pipelines)
