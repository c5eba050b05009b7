"""The base of all stand-ins: an HTTP server with injectable faults. Each wire format has its own folder."""

from __future__ import annotations

import asyncio
import hmac
import socket
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp

from standins.faults import FaultsType, Faulty

Routes = Iterable[tuple[str, str, Callable[..., Any]]]


class StandInServer(Faulty[FaultsType]):
    """A server with injectable faults. `key` is the API key that it accepts; without one, it accepts any."""

    path = ""
    """The path of the base URL."""

    def __init__(self, faults: FaultsType, *, key: str | None = None, seed: int = 0) -> None:
        super().__init__(faults, seed)
        self._key = key
        self.app = self._build_app()

    def variables(self, base_url: str) -> dict[str, str]:
        """Return the environment variables that make a client use it instead of the provider."""
        raise NotImplementedError

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve it from this event loop and yield the base URL."""
        async with serve_app(self.app, host, port) as origin:
            try:
                yield f"{origin}{self.path}"
            finally:
                self.release()

    def tally(self) -> dict[str, Any]:
        """Return the counts that tests compare with ours."""
        return {"struck": dict(self.struck)}

    def _routes(self) -> Routes:
        raise NotImplementedError

    def _build_app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)
        for method, path, answer in (*self._routes(), *self._common_routes()):
            app.add_api_route(path, answer, methods=[method], response_model=None)
        return app

    def _common_routes(self) -> Routes:
        yield "GET", "/standin/tally", self._show_tally
        yield "PUT", "/standin/faults", self._set_faults

    def _accepts(self, key: str) -> bool:
        return self._key is None or hmac.compare_digest(key.encode(), self._key.encode())

    async def _show_tally(self) -> Response:
        return JSONResponse(self.tally())

    async def _set_faults(self, request: Request) -> Response:
        try:
            self.faults.change(await request.json())
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse(self.faults.to_json())


def read_bearer(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


@asynccontextmanager
async def serve_app(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
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
        prog=f"python -m standins.{provider}",
        description="Serve the stand-in on this machine and print the variables to set. Ctrl-C stops it.",
    )
    parser.add_argument("--port", type=int, default=port, help="0 uses any free port")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each answer takes")
    return parser


def run(standin: StandInServer[Any], port: int, latency: float = 0.0) -> None:
    standin.faults.latency = latency
    asyncio.run(_serve_until_stopped(standin, port))


async def _serve_until_stopped(standin: StandInServer[Any], port: int) -> None:
    async with standin.serving(port=port) as base_url:
        for name, value in standin.variables(base_url).items():
            print(f"{name}={value}", flush=True)
        await asyncio.Event().wait()
