"""A loopback web server for a test's files."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send


class FileServer:
    """`/name` serves the content under that name; `/hangs` never ends; `/moved` redirects; all else is a 404."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.asked: list[str] = []
        self.hanging = asyncio.Event()
        self._things: dict[str, bytes] = {}

    def put(self, name: str, thing: bytes) -> str:
        self._things[f"/{name}"] = thing
        return f"{self.origin}/{name}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.asked.append(path)
        await receive()
        if path == "/hangs":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            self.hanging.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status = 302 if path == "/moved" else 200 if path in self._things else 404
        headers = [(b"location", b"http://127.0.0.1/")] if status == 302 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": self._things.get(path, b"")})
