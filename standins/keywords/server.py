"""DataForSEO's live route of keywords for keywords, with injectable faults."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from standins.faults import Faults as CommonFaults
from standins.server import Routes, StandInServer

COST = 0.075  # US dollars per call
_FIELDS = frozenset(
    (
        "keywords",
        "language_code",
        "language_name",
        "location_code",
        "location_name",
        "sort_by",
        "search_partners",
        "tag",
    )
)
_WORDS = {"pt": ("benefícios", "como usar"), "en": ("benefits", "how to"), "es": ("beneficios", "cómo usar")}


@dataclass
class Faults(CommonFaults):
    busy: int = 0
    """A 200 whose body says that the rate limit is exceeded."""
    no_credit: int = 0
    """A 200 whose body says that the balance is used up."""
    failed: int = 0
    """A 200 whose task has failed."""
    empty: int = 0
    """A 200 without any keyword."""


class StandIn(StandInServer[Faults]):
    def __init__(self, *, login: str = "", password: str = "") -> None:
        key = b64encode(f"{login}:{password}".encode()).decode() if login and password else None
        super().__init__(Faults(), key=key)
        self.requests: list[dict[str, Any]] = []
        """The tasks of all accepted requests."""

    def variables(self, base_url: str) -> dict[str, str]:
        return {"DATAFORSEO_BASE_URL": base_url}

    def tally(self) -> dict[str, Any]:
        return {"requests": len(self.requests), **super().tally()}

    def _routes(self) -> Routes:
        yield "POST", "/v3/keywords_data/google_ads/keywords_for_keywords/live", self._suggest
        yield "GET", "/v3/appendix/user_data", self._show_user

    async def _show_user(self, request: Request) -> Response:
        return await self._refusal(request) or _answer(20_000, "Ok.", _task(20_000, "Ok.", [{"login": "us"}]))

    async def _suggest(self, request: Request) -> Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        (task,) = await request.json()
        if not any(task.get("keywords", ())) or task.keys() - _FIELDS:
            return _answer(20_000, "Ok.", _task(40_501, "Invalid Field.", None))
        self.requests.append(task)
        if self._strikes("failed"):
            return _answer(20_000, "Ok.", _task(50_000, "Internal Error.", None))
        return await self._deliver(_answer(20_000, "Ok.", _task(20_000, "Ok.", self._list_keywords(task))))

    async def _refusal(self, request: Request) -> Response | None:
        if not self._accepts(request.headers.get("authorization", "").removeprefix("Basic ")):
            return JSONResponse({"status_code": 40_100, "status_message": "You are not Authorized."}, 401)
        if self._strikes("busy"):
            return _answer(40_202, "Rate limit per minute exceeded.")
        if self._strikes("no_credit"):
            return _answer(40_210, "Insufficient funds.")
        return await self._refuse(
            JSONResponse({"status_code": 40_202, "status_message": "Rate limit exceeded."}, 429),
            JSONResponse({"status_code": 50_000, "status_message": "Internal Error."}, 500),
        )

    def _list_keywords(self, task: dict[str, Any]) -> list[dict[str, Any]] | None:
        if self._strikes("empty"):
            return None
        seed = str(task["keywords"][0]).lower()
        phrases = [seed, *(f"{seed} {word}" for word in _WORDS.get(task.get("language_code", ""), ()))]
        return [
            {"keyword": phrase, "search_volume": 1000 // number, "competition": "LOW", "cpc": 0.5}
            for number, phrase in enumerate(phrases, 1)
        ]


def _task(code: int, message: str, result: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"id": "1", "status_code": code, "status_message": message, "cost": COST, "result": result}


def _answer(code: int, message: str, *tasks: dict[str, Any]) -> JSONResponse:
    return JSONResponse({"version": "0.1", "status_code": code, "status_message": message, "tasks": list(tasks)})
