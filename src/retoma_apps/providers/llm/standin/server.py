"""OpenRouter's routes, with injectable faults."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from retoma_apps.providers.llm.standin.answers import by_mention
from retoma_apps.providers.standin import PAGE, Breakable, BreaksOff, Routes, halved

LARGEST_BODY = 8 * 1024**2
_NOT_PERMITTED = re.compile(r'"(minLength|maxLength|default)": [^{]')
THINKING = 1_000  # tokens that a reasoning model uses before it answers


@dataclass
class Faults:
    """Counts apply to the next requests and run down; shares apply to all requests, from 0 to 1."""

    rate_limited: int = 0
    retry_after: float | None = 2
    broken: int = 0
    """A 502 in the wire format."""
    hangs: int = 0
    """Requests that get no answer until `release` is called or the client disconnects."""
    html: int = 0
    """A 200 with a proxy's HTML page."""
    truncated_body: int = 0
    """A 200 whose JSON ends in the middle."""
    error_inside: int = 0
    """A 200 whose choice contains an error: the model had begun. Paid for."""
    filtered: int = 0
    cut: int = 0
    """The answer is cut off because its tokens ran out. Paid for, as all that follow."""
    invalid_json: int = 0
    """Chatter instead of the requested JSON."""
    misfit: int = 0
    """JSON that does not fit the schema."""
    lost_replies: int = 0
    """Accepted, but the connection breaks."""
    out_of_credit: bool = False
    no_cost: bool = False
    """Usage without a cost."""
    shares: dict[str, float] = field(default_factory=dict)
    """How often one of the counts above occurs on its own, such as {"broken": 0.1}."""
    latency: float = 0.0
    """Seconds that each answer takes."""
    price: float = 0.000_001
    """US dollars for each token."""


class StandIn(Breakable[Faults]):
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
        yield "POST", "/api/v1/chat/completions", self._guarded(self._complete)
        yield "GET", "/api/v1/key", self._guarded(self._show_key)
        yield "GET", "/api/v1/generation", self._guarded(self._generation)

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not self._is_ours(given):
                return _failure(401, "User not found.", "authentication")
            return await answer(request)

        return guarded

    async def _complete(self, request: Request) -> Response:
        raw = await request.body()
        if (refusal := await self._refusal(raw)) is not None:
            return refusal
        try:
            body = _checked(json.loads(raw))
        except (ValueError, KeyError, TypeError) as error:
            return _failure(400, f"bad request: {error}", "invalid_request")
        if _asks_too_much(body):
            return _failure(404, "No endpoints found that can handle the requested parameters.", "not_found")
        self.requests.append(body)
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        return self._spoilt(body)

    async def _refusal(self, raw: bytes) -> Response | None:
        if len(raw) > LARGEST_BODY:
            return _failure(413, "too large", "payload_too_large")
        if self.faults.out_of_credit:
            return _failure(402, "Insufficient credits", "payment_required")
        if self._strikes("rate_limited"):
            return _failure(429, "Rate limit exceeded", "rate_limit_exceeded", self._retry_after())
        if self._strikes("broken"):
            return _failure(502, "Provider returned error", "provider_unavailable")
        if self._strikes("hangs"):
            await self._released.wait()
        return HTMLResponse(PAGE) if self._strikes("html") else None

    def _spoilt(self, body: dict[str, Any]) -> Response:
        """Return the answer, with at most one of the faults that are paid for."""
        said = self._answer(body)
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        if self._strikes("filtered"):
            return self._answered(body, "", "content_filter")
        if self._strikes("error_inside"):
            return self._answered(body, "", "error", {"code": 502, "message": "Provider disconnected"})
        if self._strikes("cut"):
            return self._answered(body, text[: len(text) // 2], "length")
        if _thinks(body) and body.get("max_tokens", THINKING) < THINKING:
            return self._answered(body, "", "length")
        if self._strikes("invalid_json"):
            return self._answered(body, f"Sure! Here it is: {text[:-1]}", "stop")
        if self._strikes("misfit"):
            return self._answered(body, json.dumps({"surprise": text}), "stop")
        answer = self._answered(body, text, "stop")
        if self._strikes("truncated_body"):
            return halved(answer)
        return BreaksOff() if self._strikes("lost_replies") else answer

    def _answered(
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


def _checked(body: Any) -> dict[str, Any]:
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


def _failure(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        {"error": {"code": status, "message": message, "metadata": {"error_type": kind}}}, status, headers
    )


def _last(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])[-200:]
