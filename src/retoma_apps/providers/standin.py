"""What the stand-ins of all providers have in common; each has its wire format in a folder of its own."""

from __future__ import annotations

import asyncio
import hmac
import socket
from argparse import ArgumentParser
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, fields
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PAGE = "<!doctype html><title>502</title><h1>Bad gateway</h1>"  # of some proxy
METADATA = "https://169.254.169.254/latest/meta-data/"  # a cloud's own address for its machines

Faults = TypeVar("Faults", bound="DataclassInstance")
Routes = Iterable[tuple[str, str, Callable[..., Any]]]


class Breakable(Generic[Faults]):
    """A server that breaks on order. Numbers in `faults` are of the next requests and run down.

    If it has `shares`, these say how often a fault strikes without being ordered, from 0 to 1.
    """

    path = ""
    """What the base URL has behind the origin."""

    def __init__(self, faults: Faults, *, key: str | None = None, seed: int = 0) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self._key = key
        self._random = Random(seed)  # noqa: S311, faults need no secrecy
        self._released = asyncio.Event()
        self.app = self._made_app()

    def variables(self, base_url: str) -> dict[str, str]:
        """What to set so that it is asked in place of the provider."""
        raise NotImplementedError

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """The base URL while it is served from this event loop."""
        async with served(self.app, host, port) as origin:
            try:
                yield f"{origin}{self.path}"
            finally:
                self.release()

    def release(self) -> None:
        """Let all that hangs be answered."""
        self._released.set()
        self._released = asyncio.Event()

    def tally(self) -> dict[str, Any]:
        """What a referee wants to know."""
        return {"struck": dict(self.struck)}

    def _routes(self) -> Routes:
        raise NotImplementedError

    def _made_app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        for method, path, answer in (*self._routes(), *self._common_routes()):
            app.add_api_route(path, answer, methods=[method], response_model=None)
        return app

    def _common_routes(self) -> Routes:
        yield "GET", "/standin/tally", self._show_tally
        yield "PUT", "/standin/faults", self._set_faults

    def _is_ours(self, key: str) -> bool:
        return self._key is None or hmac.compare_digest(key.encode(), self._key.encode())

    def _strikes(self, fault: str) -> bool:
        left = getattr(self.faults, fault)
        if left > 0:
            setattr(self.faults, fault, left - 1)
        strikes = bool(left > 0 or self._random.random() < self._share(fault))
        if strikes:
            self.struck[fault] += 1
        return strikes

    def _share(self, fault: str) -> float:
        return float(getattr(self.faults, "shares", {}).get(fault, 0.0))

    def _retry_after(self) -> dict[str, str]:
        """The header, if the faults have one."""
        after = getattr(self.faults, "retry_after", None)
        return {} if after is None else {"Retry-After": f"{after:g}"}

    async def _show_tally(self) -> Response:
        return JSONResponse(self.tally())

    async def _set_faults(self, request: Request) -> Response:
        known = {each.name: each.type for each in fields(self.faults)}
        counted = {name for name, kind in known.items() if kind == "int"}
        given = await request.json()
        if odd := [*sorted(given.keys() - known), *sorted(given.get("shares", {}).keys() - counted)]:
            return JSONResponse({"error": f"there is no fault {odd[0]!r}; there are {sorted(known)}"}, 400)
        for name, value in given.items():
            setattr(self.faults, name, set(value) if isinstance(value, list) else value)
        told = asdict(self.faults)
        return JSONResponse({name: sorted(told[name]) if isinstance(told[name], set) else told[name] for name in told})


class BreaksOff(Response):
    """Promises a body and closes the connection before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})


def halved(answer: Response) -> Response:
    """Ends in the middle of its JSON."""
    return Response(bytes(answer.body)[: len(answer.body) // 2], media_type="application/json")


@asynccontextmanager
async def served(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Where an application is reached while it is served from this event loop."""
    # The protocol is named: asyncio turns Nagle's waiting off only then, and each answer would come 40 ms late.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        server = _Quiet(uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://{host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


class _Quiet(uvicorn.Server):
    """Leaves the signals to whoever embeds it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def program(provider: str, port: int) -> ArgumentParser:
    """What the command of a provider's stand-in takes; `port` is its own, so that all can be served at once."""
    parser = ArgumentParser(
        prog=f"python -m retoma_apps.providers.{provider}.standin",
        description="Serve the stand-in on this machine, and say what to set. Ctrl-C ends it.",
    )
    parser.add_argument("--port", type=int, default=port, help="0 takes any that is free")
    return parser


def run(standin: Breakable[Any], port: int) -> None:
    asyncio.run(_served(standin, port))


async def _served(standin: Breakable[Any], port: int) -> None:
    async with standin.serving(port=port) as base_url:
        for name, value in standin.variables(base_url).items():
            print(f"{name}={value}", flush=True)
        await asyncio.Event().wait()
