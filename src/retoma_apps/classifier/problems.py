"""Problem details of the classifier's routes in Portuguese, the language of their names."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from retoma.errors import RetomaError
from retoma.server import Problem, to_problem
from retoma_apps.classifier.pages.messages import ERROR_CODES, create_translator, describe_error_code

_BY_CODE = {
    "NOT_FOUND": "este documento não existe nesta execução",
    "RUN_BUSY": "o estado atual da execução não permite isto: consulte o `status` e tente de novo quando ela terminar",
    "CONFLICT": "já existe, ou foi alterado por outra pessoa: consulte de novo, ou escolha outro nome",
    "IDEMPOTENCY_KEY_REUSED": "esta Idempotency-Key já foi usada em outra requisição, ou o projeto mudou: use outra",
    "SCOPE_MISSING": "a chave não tem o escopo que esta requisição exige",
    "TOO_MANY_REQUESTS": "muitas requisições: tente de novo após os segundos indicados em Retry-After",
    "DATABASE_UNAVAILABLE": "o banco de dados está indisponível, e não se sabe se a operação foi concluída: repita com "
    "a mesma Idempotency-Key",
}


class PortugueseRoute(APIRoute):
    """Returns errors in Portuguese, with the English message as `detail_en`, unless the caller prefers English."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_portuguese(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, RequestValidationError, RetomaError) as error:
                problem = to_problem(error)
                if not _prefers_english(request):
                    _translate(problem, getattr(error, "pt", None))
                if problem is error:
                    raise
                raise problem from error

        return handle_in_portuguese


def explain_in_portuguese(code: str | None) -> str | None:
    """Return the meaning of an error code and what to do, in Portuguese; None if the code is not ours."""
    return describe_error_code(create_translator("pt"), code) if code in ERROR_CODES else None


def _translate(problem: Problem, pt: str | None) -> None:
    detail = pt or _BY_CODE.get(problem.code) or explain_in_portuguese(problem.code)
    if problem.code == "INVALID_REQUEST":
        fields = ", ".join(each["field"] for each in problem.members["errors"][:3])
        detail = f"a requisição tem campos inválidos: {fields}; veja o motivo de cada um em `errors`"
    if detail is not None:
        problem.members["detail_en"] = problem.detail
        problem.detail = detail


def _prefers_english(request: Request) -> bool:
    return request.headers.get("Accept-Language", "").strip().lower().startswith("en")
