"""The base of all stand-ins. Each provider's stand-in has its wire format in its own folder."""

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

PAGE = "<!doctype html><title>502</title><h1>Bad gateway</h1>"  # a proxy's error page
METADATA = "https://169.254.169.254/latest/meta-data/"  # a cloud's metadata address

Faults = TypeVar("Faults", bound="DataclassInstance")
Routes = Iterable[tuple[str, str, Callable[..., Any]]]


class Breakable(Generic[Faults]):
    """A server with injectable faults. Counts in `faults` apply to the next requests and run down.

    If it has `shares`, they say how often a fault occurs on its own, from 0 to 1.
    """

    path = ""
    """The path of the base URL."""

    def __init__(self, faults: Faults, *, key: str | None = None, seed: int = 0) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self._key = key
        self._random = Random(seed)  # noqa: S311, faults need no secrecy
        self._released = asyncio.Event()
        self.app = self._made_app()

    def variables(self, base_url: str) -> dict[str, str]:
        """Return the environment variables that make a client use it instead of the provider."""
        raise NotImplementedError

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve it from this event loop and yield the base URL."""
        async with served(self.app, host, port) as origin:
            try:
                yield f"{origin}{self.path}"
            finally:
                self.release()

    def release(self) -> None:
        """Answer all hanging requests."""
        self._released.set()
        self._released = asyncio.Event()

    def tally(self) -> dict[str, Any]:
        """Return the counts that tests compare with ours."""
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
        """Return the header, if the faults set one."""
        after = getattr(self.faults, "retry_after", None)
        return {} if after is None else {"Retry-After": f"{after:g}"}

    async def _show_tally(self) -> Response:
        return JSONResponse(self.tally())

    async def _set_faults(self, request: Request) -> Response:
        known = {each.name: each.type for each in fields(self.faults)}
        counted = {name for name, kind in known.items() if kind == "int"}
        changes = await request.json()
        if odd := [*sorted(changes.keys() - known), *sorted(changes.get("shares", {}).keys() - counted)]:
            return JSONResponse({"error": f"there is no fault {odd[0]!r}; there are {sorted(known)}"}, 400)
        for name, value in changes.items():
            setattr(self.faults, name, set(value) if isinstance(value, list) else value)
        faults = asdict(self.faults)
        return JSONResponse(
            {name: sorted(faults[name]) if isinstance(faults[name], set) else faults[name] for name in faults}
        )


class BreaksOff(Response):
    """Promises a body and closes the connection before sending it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"64")]})


def halved(answer: Response) -> Response:
    """Cut the answer in the middle of its JSON."""
    return Response(bytes(answer.body)[: len(answer.body) // 2], media_type="application/json")


@asynccontextmanager
async def served(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve an application from this event loop and yield its origin."""
    # Name the protocol: only then does asyncio turn Nagle's algorithm off, which delays each answer by 40 ms.
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
    """Leaves signal handling to the embedding process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def program(provider: str, port: int) -> ArgumentParser:
    """Return the parser of a stand-in's command line. Each has its own default `port`, so all can run at once."""
    parser = ArgumentParser(
        prog=f"python -m retoma_apps.providers.{provider}.standin",
        description="Serve the stand-in on this machine and print the variables to set. Ctrl-C stops it.",
    )
    parser.add_argument("--port", type=int, default=port, help="0 uses any free port")
    return parser


def run(standin: Breakable[Any], port: int) -> None:
    asyncio.run(_served(standin, port))


async def _served(standin: Breakable[Any], port: int) -> None:
    async with standin.serving(port=port) as base_url:
        for name, value in standin.variables(base_url).items():
            print(f"{name}={value}", flush=True)
        await asyncio.Event().wait()
