"""The faults that every service can have, and how they strike. A stand-in adds the faults of its own service."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from random import Random
from typing import Any, Generic, TypeVar

from fastapi import Response
from fastapi.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

PAGE = "<!doctype html><title>502</title><h1>Bad gateway</h1>"  # a proxy's error page
METADATA = "https://169.254.169.254/latest/meta-data/"  # a cloud's metadata address


@dataclass
class Faults:
    """Counts apply to the next requests and run down; shares apply to all requests, from 0 to 1."""

    rate_limited: int = 0
    """A 429."""
    retry_after: float | None = 2
    """Seconds that a 429 names, if any."""
    broken: int = 0
    """A server error before the request is accepted."""
    hangs: int = 0
    """Requests that get no answer until `release` is called or the client disconnects."""
    html: int = 0
    """A 200 with a proxy's HTML page."""
    latency: float = 0.0
    """Seconds that each accepted request takes."""
    truncated_body: int = 0
    """Accepted, but the JSON of the answer ends in the middle."""
    lost_replies: int = 0
    """Accepted, but the connection breaks before the answer."""
    shares: dict[str, float] = field(default_factory=dict)
    """How often one of the counts occurs on its own, such as {"broken": 0.1}."""

    def change(self, changes: dict[str, Any]) -> None:
        """Set faults from JSON. Raise ValueError on an unknown name."""
        known = {each.name: each.type for each in fields(self)}
        counted = {name for name, kind in known.items() if kind == "int"}
        if odd := [*sorted(changes.keys() - known), *sorted(changes.get("shares", {}).keys() - counted)]:
            raise ValueError(f"there is no fault {odd[0]!r}; there are {sorted(known)}")
        for name, value in changes.items():
            setattr(self, name, set(value) if isinstance(value, list) else value)

    def to_json(self) -> dict[str, Any]:
        return {name: sorted(value) if isinstance(value, set) else value for name, value in asdict(self).items()}


FaultsType = TypeVar("FaultsType", bound=Faults)


class Faulty(Generic[FaultsType]):
    """Decides when one of its `faults` strikes, and counts in `struck` how often each did."""

    def __init__(self, faults: FaultsType, seed: int) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self._random = Random(seed)  # noqa: S311, faults need no secrecy
        self._released = asyncio.Event()

    def release(self) -> None:
        """Answer all hanging requests."""
        self._released.set()
        self._released = asyncio.Event()

    def _strikes(self, fault: str) -> bool:
        left = getattr(self.faults, fault)
        if left > 0:
            setattr(self.faults, fault, left - 1)
        strikes = bool(left > 0 or self._random.random() < self.faults.shares.get(fault, 0.0))
        if strikes:
            self.struck[fault] += 1
        return strikes

    async def _refuse(self, rate_limit: Response, outage: Response) -> Response | None:
        """Return the answer to a request that is not accepted, in the service's own words, or None."""
        if self._strikes("rate_limited"):
            if self.faults.retry_after is not None:
                rate_limit.headers["Retry-After"] = f"{self.faults.retry_after:g}"
            return rate_limit
        if self._strikes("broken"):
            return outage
        if self._strikes("hangs"):
            await self._released.wait()
        return HTMLResponse(PAGE) if self._strikes("html") else None

    async def _deliver(self, answer: Response) -> Response:
        """Return the answer to an accepted request as it reaches the client."""
        if self.faults.latency:
            await asyncio.sleep(self.faults.latency)
        if self._strikes("truncated_body"):
            return Response(bytes(answer.body)[: len(answer.body) // 2], media_type="application/json")
        return LostReply() if self._strikes("lost_replies") else answer


class LostReply(Response):
    """Promises a body and closes the connection before sending it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})
