"""OpenRouter's routes, with injectable faults."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from standins.faults import Faults as CommonFaults
from standins.llm.answers import by_mention
from standins.server import Routes, StandInServer, read_bearer

LARGEST_BODY = 8 * 1024**2
_NOT_PERMITTED = re.compile(r'"(minLength|maxLength|default)": [^{]')
THINKING = 1_000  # tokens that a reasoning model uses before it answers


@dataclass
class Faults(CommonFaults):
    error_inside: int = 0
    """A 200 whose choice contains an error: the model had begun. Paid for."""
    filtered: int = 0
    cut: int = 0
    """The answer is cut off because its tokens ran out. Paid for, as all that follow."""
    invalid_json: int = 0
    """Chatter instead of the requested JSON."""
    misfit: int = 0
    """JSON that does not fit the schema."""
    out_of_credit: bool = False
    no_cost: bool = False
    """Usage without a cost."""
    price: float = 0.000_001
    """US dollars for each token."""


class StandIn(StandInServer[Faults]):
    """`answer` converts a request's body to the model's output: a text, or an object to write as JSON."""

    path = "/api/v1"

    def __init__(
        self,
        *,
        key: str | None = None,
        answer: Callable[[dict[str, Any]], Any] = by_mention,
        ledger: Path | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(Faults(), key=key, seed=seed)
        self.requests: list[dict[str, Any]] = []
        """Bodies of all accepted completions."""
        self.cost = 0
        """Of all answers, in millionths of a US dollar."""
        self._generations: dict[str, dict[str, Any]] = {}
        self._answer = answer
        self._ledger = ledger

    def variables(self, base_url: str) -> dict[str, str]:
        return {"OPENROUTER_BASE_URL": base_url}

    def tally(self) -> dict[str, Any]:
        return {"requests": len(self.requests), "cost": self.cost, **super().tally()}

    def _routes(self) -> Routes:
        yield "POST", "/api/v1/chat/completions", self._guard(self._complete)
        yield "GET", "/api/v1/key", self._guard(self._show_key)
        yield "GET", "/api/v1/generation", self._guard(self._generation)

    def _guard(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer_if_authorised(request: Request) -> Response:
            if not self._accepts(read_bearer(request)):
                return _failure(401, "User not found.", "authentication")
            return await answer(request)

        return answer_if_authorised

    async def _complete(self, request: Request) -> Response:
        raw = await request.body()
        if (refusal := await self._refusal(raw)) is not None:
            return refusal
        try:
            body = _check(json.loads(raw))
        except (ValueError, KeyError, TypeError) as error:
            return _failure(400, f"bad request: {error}", "invalid_request")
        if _asks_too_much(body):
            return _failure(404, "No endpoints found that can handle the requested parameters.", "not_found")
        self.requests.append(body)
        return await self._deliver(self._spoil(body))

    async def _refusal(self, raw: bytes) -> Response | None:
        if len(raw) > LARGEST_BODY:
            return _failure(413, "too large", "payload_too_large")
        if self.faults.out_of_credit:
            return _failure(402, "Insufficient credits", "payment_required")
        return await self._refuse(
            _failure(429, "Rate limit exceeded", "rate_limit_exceeded"),
            _failure(502, "Provider returned error", "provider_unavailable"),
        )

    def _spoil(self, body: dict[str, Any]) -> Response:
        """Return the answer, with at most one of the model's faults. All of them are paid for."""
        said = self._answer(body)
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        if self._strikes("filtered"):
            return self._build_response(body, "", "content_filter")
        if self._strikes("error_inside"):
            return self._build_response(body, "", "error", {"code": 502, "message": "Provider disconnected"})
        if self._strikes("cut"):
            return self._build_response(body, text[: len(text) // 2], "length")
        if _thinks(body) and body.get("max_tokens", THINKING) < THINKING:
            return self._build_response(body, "", "length")
        if self._strikes("invalid_json"):
            return self._build_response(body, f"Sure! Here it is: {text[:-1]}", "stop")
        if self._strikes("misfit"):
            return self._build_response(body, json.dumps({"surprise": text}), "stop")
        return self._build_response(body, text, "stop")

    def _build_response(
        self, body: dict[str, Any], text: str, finish_reason: str, error: dict[str, Any] | None = None
    ) -> JSONResponse:
        usage = self._usage(body, text)
        choice = {
            "index": 0,
            "finish_reason": finish_reason,
            "native_finish_reason": finish_reason,
            "message": {"role": "assistant", "content": text},
        }
        told = {
            "id": f"gen-{uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [choice | ({"error": error} if error else {})],
            "usage": usage,
        }
        self._generations[str(told["id"])] = usage
        self._note(body, finish_reason, usage)
        return JSONResponse(told)

    def _usage(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        """Count about four characters to a token."""
        asked = sum(len(str(each["content"])) for each in body["messages"]) // 4 + 1
        said = len(text) // 4 + 1
        cost = round((asked + said) * self.faults.price, 9)
        self.cost += round(cost * 1_000_000)
        tokens = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
        return tokens if self.faults.no_cost else tokens | {"cost": cost, "is_byok": False}

    def _note(self, body: dict[str, Any], finish_reason: str, usage: dict[str, Any]) -> None:
        if self._ledger is not None:
            line = {"model": body["model"], "finish_reason": finish_reason, "usage": usage, "last": _last(body)}
            with self._ledger.open("a") as ledger:
                ledger.write(json.dumps(line) + "\n")

    async def _show_key(self, _: Request) -> Response:
        return JSONResponse({"data": {"label": "stand-in", "limit": None, "usage": self.cost / 1e6}})

    async def _generation(self, request: Request) -> Response:
        found = self._generations.get(request.query_params.get("id", ""))
        return JSONResponse({"data": found}) if found else _failure(404, "no such generation", "not_found")


def _check(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise ValueError("`model` is missing")
    if not body.get("messages") or any({"role", "content"} - each.keys() for each in body["messages"]):
        raise ValueError("`messages` is missing, or one has no role or content")
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        _check_strict(wanted["json_schema"]["schema"])
    return body


def _check_strict(schema: dict[str, Any]) -> None:
    if schema.get("additionalProperties") is not False:
        raise ValueError("a strict schema needs additionalProperties: false")
    if found := _NOT_PERMITTED.search(json.dumps(schema)):
        raise ValueError(f"in a strict schema {found[1]} is not permitted")


def _thinks(body: dict[str, Any]) -> bool:
    return "/gpt-5" in body["model"]


def _asks_too_much(body: dict[str, Any]) -> bool:
    """Return whether the request requires a parameter that the model lacks."""
    is_required = (body.get("provider") or {}).get("require_parameters")
    return bool(is_required and _thinks(body) and "temperature" in body)


def _failure(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"code": status, "message": message, "metadata": {"error_type": kind}}}, status)


def _last(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])[-200:]
