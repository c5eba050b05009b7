"""Return errors as RFC 9457 defines them: `application/problem+json` with type, title, status, detail and code."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from retoma.define.definition_errors import suggest_name
from retoma.errors import (
    AccessDenied,
    AlreadyDecided,
    Conflict,
    ConnectionKeyMissing,
    DatabaseUnavailable,
    FeedbackNotSupported,
    Gone,
    InvalidInput,
    KeyReused,
    NotFound,
    RetomaError,
    RevisionChanged,
    RoleMissing,
    RunBusy,
    RunHeld,
    RunRemoved,
    SchemaMismatch,
    Unrecordable,
    UnsafeUrl,
)
from retoma.tracebacks import release_frames

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = {"Retry-After": "2"}
_SCHEMA = {"$ref": "#/components/schemas/Problem"}  # added to the OpenAPI document from `schemas.Problem`
_DESCRIPTIONS = {
    400: "The request is malformed.",
    401: "The API key is missing or invalid.",
    403: "The API key lacks a required scope, the person lacks a required role, or neither may access this tenant.",
    404: "The object does not exist, or the caller may not access it.",
    405: "This path does not support the method.",
    409: "The request conflicts with the current state.",
    410: "The object has expired or is no longer available.",
    412: "The object has changed since it was read.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    422: "A value is invalid.",
    429: "Too many requests. Retry after the number of seconds in `Retry-After`.",
    503: "The database is unavailable. Retry after the number of seconds in `Retry-After`.",
}


class Problem(HTTPException):
    """An error response that a route raises. `members` are added to the standard members of the body."""

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
        # Escape to ASCII: an unpaired surrogate from the request cannot be encoded as UTF-8.
        text = json.dumps(
            self.body, default=lambda value: value.isoformat() if isinstance(value, datetime) else str(value)
        )
        return Response(text, self.status_code, headers=self.headers, media_type=MEDIA_TYPE)


class ProblemRoute(APIRoute):
    """A route of an application that changes the problems which answer errors: `APIRouter(route_class=...)`."""

    def change_problem(self, problem: Problem, error: Exception, request: Request) -> None:
        """Change the problem before it is sent. `error` is what the route raised."""
        raise NotImplementedError

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (Problem, RequestValidationError, RetomaError) as error:
                problem = to_problem(error, _list_body_fields(self))
                self.change_problem(problem, error, request)
                if problem is error:
                    raise
                raise problem from error

        return handle


def document_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for the OpenAPI document."""
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        for status in statuses
    }


def document_binary(description: str, media_type: str = "application/octet-stream") -> dict[str, Any]:
    """Return a response with the content of a file for the OpenAPI document."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}


def add_exception_handlers(server: FastAPI) -> None:
    server.add_exception_handler(HTTPException, _on_http_error)
    server.add_exception_handler(RequestValidationError, _on_error)
    server.add_exception_handler(RetomaError, _on_error)


def to_problem(error: Problem | RequestValidationError | RetomaError, body_fields: Sequence[str] = ()) -> Problem:
    """Return the problem that answers an error raised by a route whose body may have these fields."""
    detail = str(error)
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _problem_from_validation(error, body_fields)
        case RoleMissing():
            return Problem(403, "ROLE_MISSING", detail)
        case AccessDenied():
            return Problem(403, "OTHER_TENANT", detail)
        case RunRemoved():
            return Problem(410, "RUN_REMOVED", detail)
        case Gone():
            return Problem(410, "GONE", detail)
        case NotFound():
            return Problem(404, "NOT_FOUND", detail)
        case FeedbackNotSupported():
            return Problem(422, "FEEDBACK_NOT_SUPPORTED", detail)
        case InvalidInput():
            cause = error.__cause__
            errors = cause.errors(include_input=False) if isinstance(cause, ValidationError) else []
            fields = [_describe_field(each) for each in errors]
            return Problem(422, "INVALID_INPUT", detail, errors=fields)
        case UnsafeUrl():
            fields = [{"field": error.field, "message": error.reason}] if error.field else []
            return Problem(422, "UNSAFE_URL", detail, errors=fields)
        case KeyReused():
            # 422 as in the IETF draft on the Idempotency-Key header.
            return Problem(422, "IDEMPOTENCY_KEY_REUSED", detail)
        case RunBusy():
            return Problem(409, "RUN_BUSY", detail)
        case RunHeld():
            return Problem(409, "RUN_HELD", detail)
        case AlreadyDecided():
            winner = {name: getattr(error.winner, name) for name in ("state", "decided_by", "decided_at")}
            return Problem(409, "ALREADY_DECIDED", detail, winner=winner)
        case RevisionChanged():
            return Problem(409, "REVISION_CHANGED", detail)
        case ConnectionKeyMissing():
            return Problem(409, "CONNECTION_KEY_MISSING", detail)
        case Conflict():
            return Problem(409, "CONFLICT", detail)
        case Unrecordable():
            return Problem(422, "UNRECORDABLE", "the database cannot store one of these values: remove NUL characters")
        case DatabaseUnavailable():
            return database_unavailable()
        case SchemaMismatch():
            return Problem(503, "SCHEMA_MISMATCH", detail, headers=RETRY_AFTER)
        case _:
            return Problem(422, _error_code(error), detail)


def _problem_from_validation(error: RequestValidationError, body_fields: Sequence[str]) -> Problem:
    if _is_body_not_json(error):
        detail = "the body was not parsed as JSON: send Content-Type: application/json"
        return Problem(422, "INVALID_REQUEST", detail, errors=[{"field": "Content-Type", "message": detail}])
    fields = [_describe_field(each, body_fields) for each in error.errors()]
    first = "; ".join(f"{each['field']}: {each['message']}" for each in fields[:3])
    return Problem(422, "INVALID_REQUEST", f"invalid request: {first}", errors=fields)


def _is_body_not_json(error: RequestValidationError) -> bool:
    """Return whether FastAPI took the body for plain bytes because its content type is not JSON."""
    return isinstance(error.body, bytes) and any(tuple(each["loc"]) == ("body",) for each in error.errors())


def database_unavailable() -> Problem:
    return Problem(
        503,
        "DATABASE_UNAVAILABLE",
        "the database is unavailable, so the request may or may not have been processed: retry it with the same "
        "Idempotency-Key",
        headers=RETRY_AFTER,
    )


def check_rate(seconds: float, reason: str) -> None:
    """Raise a Problem (429) if `seconds`, the time until the next request is allowed, is not 0."""
    if seconds > 0:
        after = math.ceil(seconds)
        raise Problem(429, "TOO_MANY_REQUESTS", f"{reason}: retry in {after} s", headers={"Retry-After": str(after)})


def _error_code(error: RetomaError) -> str:
    """Return the class name in capitals: `UnsafeUrl` becomes UNSAFE_URL."""
    name = type(error).__name__
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).lstrip("_").upper()


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    release_frames(error)
    if isinstance(error, Problem):
        return error.to_response()
    code = HTTPStatus(error.status_code).name
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(sorted({each for route in find_routes(request) for each in route.methods or ()}))}
    return Problem(error.status_code, code, _describe_http_error(error), headers=headers).to_response()


def find_routes(request: Request) -> list[RouteContext]:
    """Return the routes that match the path of the request, for any method."""
    routes = iter_route_contexts(request.app.routes)
    return [route for route in routes if compile_path(route.path or "")[0].match(request.scope["path"])]


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError | RetomaError)
    release_frames(error)
    return to_problem(error, _list_body_fields(request.scope.get("route"))).to_response()


def _list_body_fields(route: Any) -> list[str]:
    """Return the names of the fields that the body of a route may have; none if the body is not a model."""
    field = getattr(route, "body_field", None)
    model = None if field is None else field.field_info.annotation
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _describe_http_error(error: HTTPException) -> str:
    match error.status_code:
        case 404:
            return "no such path; see /api/v1/openapi.json for all paths"
        case 405:
            return "this path does not support this method"
        case _:
            return str(error.detail)


def _describe_field(error: Any, body_fields: Sequence[str] = ()) -> dict[str, str]:
    """Return the dotted path and the message of an error, without the value, which may be secret."""
    location = error["loc"]
    if error["msg"] == "JSON decode error":  # its location is a character offset
        return {"field": "body", "message": f"not valid JSON: {error['ctx']['error']} at character {location[-1]}"}
    parts = location[1:] if len(location) > 1 and location[0] in ("body", "query", "path", "header") else location
    if error["type"] == "extra_forbidden" and location[:1] == ("body",) and len(parts) == 1 and body_fields:
        return {"field": str(parts[0]), "message": f"unknown field; {suggest_name(str(parts[0]), body_fields)}"}
    return {"field": ".".join(map(str, parts)), "message": str(error["msg"]).removeprefix("Value error, ")}
