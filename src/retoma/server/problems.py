"""Errors as RFC 9457 says: `application/problem+json` with type, title, status, detail and code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from retoma.errors import (
    AlreadyDecided,
    Conflict,
    DatabaseUnavailable,
    FeedbackNotSupported,
    Gone,
    InvalidInput,
    KeyReused,
    NotFound,
    RetomaError,
    RevisionChanged,
    RunBusy,
    SchemaMismatch,
    Unrecordable,
    UnsafeUrl,
)
from retoma.tracebacks import release_frames

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = {"Retry-After": "2"}
_SCHEMA = {"$ref": "#/components/schemas/Problem"}  # which the OpenAPI document has from `shapes.Problem`
_DESCRIPTIONS = {
    400: "the request cannot be read",
    401: "no key, or not a valid one",
    403: "the key lacks a scope",
    404: "there is no such thing for this key",
    405: "the method is not for this path",
    409: "it is at odds with what is there",
    410: "it is over",
    412: "it was changed since it was seen",
    413: "the body is too large",
    415: "the body has a type that is not read here",
    422: "a value is wrong",
    429: "too many requests; Retry-After says when to come again",
    503: "the database does not answer; Retry-After says when to come again",
}


class Problem(HTTPException):
    """What a route raises to be answered with an error. `members` stand in the body beside the standard ones."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.members = members

    @property
    def body(self) -> dict[str, Any]:
        standard = {
            "type": f"urn:retoma:problem:{self.code.lower()}",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "code": self.code,
        }
        return standard | self.members

    def to_response(self) -> Response:
        # Escaped to ASCII, because half a character of the caller's own would not encode.
        text = json.dumps(self.body, default=_to_json_value)
        return Response(text, self.status_code, headers=self.headers, media_type=MEDIA_TYPE)


def document_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer beside its result, for the OpenAPI document."""
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        for status in statuses
    }


def document_binary(description: str, media_type: str = "application/octet-stream") -> dict[str, Any]:
    """What a route answers with the content of a file, for the OpenAPI document."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}


def add_exception_handlers(server: FastAPI) -> None:
    server.add_exception_handler(HTTPException, _on_http_error)
    server.add_exception_handler(RequestValidationError, _on_invalid_request)
    server.add_exception_handler(RetomaError, _on_retoma_error)


def problem_from_error(error: RetomaError) -> Problem:
    said = str(error)
    match error:
        case Gone():
            return Problem(410, "GONE", said)
        case NotFound():
            return Problem(404, "NOT_FOUND", said)
        case FeedbackNotSupported():
            return Problem(422, "FEEDBACK_NOT_SUPPORTED", said)
        case InvalidInput():
            cause = error.__cause__
            fields = _describe_fields(cause.errors(include_input=False)) if isinstance(cause, ValidationError) else []
            return Problem(422, "INVALID_INPUT", said, errors=fields)
        case UnsafeUrl():
            fields = [{"field": error.field, "message": error.reason}] if error.field else []
            return Problem(422, "UNSAFE_URL", said, errors=fields)
        case KeyReused():
            # A mistake of the caller's, as RFC drafts on it say.
            return Problem(422, "IDEMPOTENCY_KEY_REUSED", said)
        case RunBusy():
            return Problem(409, "RUN_BUSY", said)
        case AlreadyDecided():
            winner = {name: getattr(error.winner, name) for name in ("state", "decided_by", "decided_at")}
            return Problem(409, "ALREADY_DECIDED", said, winner=winner)
        case RevisionChanged():
            return Problem(409, "REVISION_CHANGED", said)
        case Conflict():
            return Problem(409, "CONFLICT", said)
        case Unrecordable():
            return Problem(422, "UNRECORDABLE", "the database cannot hold one of these values: is there a NUL in it?")
        case DatabaseUnavailable():
            return database_unavailable()
        case SchemaMismatch():
            return Problem(503, "SCHEMA_MISMATCH", said, headers=RETRY_AFTER)
        case _:
            return Problem(422, _error_code(error), said)


def to_problem(error: Problem | RequestValidationError | RetomaError) -> Problem:
    """How an error that a route raised is answered."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _problem_from_validation(error)
        case _:
            return problem_from_error(error)


def _problem_from_validation(error: RequestValidationError) -> Problem:
    if _is_body_not_json(error):
        said = "the body was not read as JSON: send Content-Type: application/json"
        return Problem(422, "INVALID_REQUEST", said, errors=[{"field": "Content-Type", "message": said}])
    fields = _describe_fields(error.errors())
    told = "; ".join(f"{each['field']}: {each['message']}" for each in fields[:3])
    return Problem(422, "INVALID_REQUEST", f"the request is wrong: {told}", errors=fields)


def _is_body_not_json(error: RequestValidationError) -> bool:
    """Whether a body came whose type does not say that it is JSON: it is then taken for plain bytes."""
    return isinstance(error.body, bytes) and any(tuple(each["loc"]) == ("body",) for each in error.errors())


def database_unavailable() -> Problem:
    return Problem(
        503,
        "DATABASE_UNAVAILABLE",
        "the database does not answer; whether this was done is not known: send it again with the same Idempotency-Key",
        headers=RETRY_AFTER,
    )


def check_rate(seconds: float, reason: str) -> None:
    """Raise a Problem if there is something to wait for."""
    if seconds > 0:
        after = math.ceil(seconds)
        raise Problem(
            429, "TOO_MANY_REQUESTS", f"{reason}: come again in {after} s", headers={"Retry-After": str(after)}
        )


def _to_json_value(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _error_code(error: RetomaError) -> str:
    """`UnsafeUrl` is UNSAFE_URL."""
    name = type(error).__name__
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).lstrip("_").upper()


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    release_frames(error)
    if isinstance(error, Problem):
        return error.to_response()
    code = HTTPStatus(error.status_code).name
    headers = {"Allow": _list_allowed_methods(request)} if error.status_code == 405 else error.headers
    return Problem(error.status_code, code, _describe_http_error(error), headers=headers).to_response()


def _list_allowed_methods(request: Request) -> str:
    """Every method that some route takes on this path."""
    return ", ".join(sorted({method for route in find_routes(request) for method in route.methods or ()}))


def find_routes(request: Request) -> list[RouteContext]:
    """The routes on its path, for whichever method."""
    routes = iter_route_contexts(request.app.routes)
    return [route for route in routes if compile_path(route.path or "")[0].match(request.scope["path"])]


async def _on_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    release_frames(error)
    return to_problem(error).to_response()


async def _on_retoma_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RetomaError)
    release_frames(error)
    return problem_from_error(error).to_response()


def _describe_http_error(error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return "there is no such path; /api/v1/openapi.json lists them"
        case 405:
            return "this path does not take this method"
        case _:
            return str(error.detail)


def _describe_fields(errors: Any) -> list[dict[str, str]]:
    """Without the values themselves, which may be secrets."""
    return [
        _describe_invalid_json(each) if each["msg"] == "JSON decode error" else _describe_field(each) for each in errors
    ]


def _describe_field(error: Any) -> dict[str, str]:
    return {"field": _format_location(error["loc"]), "message": str(error["msg"]).removeprefix("Value error, ")}


def _describe_invalid_json(error: Any) -> dict[str, str]:
    """Of a body that cannot be read the place is that of a character."""
    return {"field": "body", "message": f"this is no JSON: {error['ctx']['error']} at character {error['loc'][-1]}"}


def _format_location(location: tuple[int | str, ...]) -> str:
    """Where it is in the body or the query, as people write it."""
    parts = location[1:] if len(location) > 1 and location[0] in ("body", "query", "path", "header") else location
    return ".".join(map(str, parts))
