"""Problem details of the classifier's routes in Portuguese, the language of their names."""

from __future__ import annotations

from starlette.requests import Request

from retoma.errors import RetomaError
from retoma.server import Problem, ProblemRoute
from retoma.translations import N_, Translator
from retoma_apps.classifier.pages.messages import ERROR_CODES, create_translator, describe_error_code

_BY_CODE = {
    "NOT_FOUND": N_("there is no such document in this execution"),
    "INVALID_INPUT": N_("a value of the request is not valid; `detail_en` has the reason"),
    "RUN_BUSY": N_(
        "the current state of the execution does not allow this: check its `status` and try again once it has ended"
    ),
    "CONFLICT": N_("it already exists, or somebody else changed it: read it again, or choose another name"),
    "IDEMPOTENCY_KEY_REUSED": N_(
        "this Idempotency-Key was already used for another request, or the project has changed: use another key"
    ),
    "SCOPE_MISSING": N_("the key lacks the scope that this request needs"),
    "TOO_MANY_REQUESTS": N_("too many requests: try again after the number of seconds in Retry-After"),
    "DATABASE_UNAVAILABLE": N_(
        "the database is unavailable, and it is not known whether the operation completed: repeat it with the same "
        "Idempotency-Key"
    ),
}
_INVALID_FIELDS = N_("the request has invalid fields: %(fields)s; `errors` has the reason for each")


class PortugueseRoute(ProblemRoute):
    """Returns errors in Portuguese, with the English message as `detail_en`, unless the caller prefers English."""

    def change_problem(self, problem: Problem, error: Exception, request: Request) -> None:
        prefers_english = request.headers.get("Accept-Language", "").strip().lower().startswith("en")
        detail = None if prefers_english else _find_translation(problem, error, create_translator("pt"))
        if detail is not None:
            problem.members["detail_en"] = problem.detail
            problem.detail = detail


def explain_in_portuguese(code: str | None) -> str | None:
    """Return the meaning of an error code and what to do, in Portuguese; None if the code is not ours."""
    return describe_error_code(create_translator("pt"), code) if code in ERROR_CODES else None


def _find_translation(problem: Problem, error: Exception, translator: Translator) -> str | None:
    """Return the translated message, or what the code means if the message is in no catalogue."""
    if problem.code == "INVALID_REQUEST":
        fields = ", ".join(each["field"] for each in problem.members["errors"][:3])
        return translator.gettext(_INVALID_FIELDS, fields=fields)
    reason = error.__cause__ if isinstance(error, Problem) else error
    message, values = (reason.message, reason.values) if isinstance(reason, RetomaError) else (problem.detail, {})
    translated = translator.gettext(message, **values) if message else ""
    if translated != problem.detail:
        return translated
    by_code = _BY_CODE.get(problem.code)
    return explain_in_portuguese(problem.code) if by_code is None else translator.gettext(by_code)
