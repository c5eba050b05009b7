"""Clients that are generated from the real OpenAPI document compile, and work against a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.store.database import Database
from tests.apps.autowriter.writer_app import open_writer_app
from tests.apps.classifier.classifier_app import running_classifier_app
from tests.apps.gpu.gpu_app import running_gpu_app
from tests.apps.stories.story_app import running_story_app
from tests.apps.videos.video_app import running_video_app
from tests.clients.generators import python_tools, typescript_tools
from tests.conftest import empty_database

HERE = Path(__file__).parent
SECONDS = 120
# The programs ignore that the project's own mypy finds no generated client. The generator writes the same `client.py`
# for every document, and types its `__exit__` more loosely than httpx does.
MYPY = """
[mypy]
strict = true
warn_unused_ignores = false

[mypy-generated.client]
disable_error_code = arg-type
"""


@dataclass(frozen=True)
class ServedApp:
    address: str
    key: str
    document: Path


APPLICATIONS: dict[str, Any] = {
    "gpu": running_gpu_app,
    "classifier": running_classifier_app,
    "videos": running_video_app,
    "autowriter": open_writer_app,
    "stories": running_story_app,
}


@asynccontextmanager
async def served_app(name: str, database: Database, folder: Path) -> AsyncIterator[ServedApp]:
    """Serve an application on a port, and keep its OpenAPI document in a file."""
    await empty_database(database)
    async with APPLICATIONS[name](database, folder) as opened:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        document = folder / "openapi.json"
        document.write_bytes((await opened.api.get("/api/v1/openapi.json")).content)
        async with run_server(opened.api.server, listening, settings):
            yield ServedApp(get_address(listening), opened.api.key or "", document)


@pytest.mark.parametrize("name", ["classifier", "videos", "autowriter", "stories"])
async def test_clients_of_the_other_applications_compile(database: Database, tmp_path: Path, name: str) -> None:
    python, typescript = await asyncio.to_thread(python_tools), await asyncio.to_thread(typescript_tools)
    programs = typescript / "node_modules" / ".bin"
    async with served_app(name, database, tmp_path) as served:
        await generate_python(served, python, tmp_path)
        await run(programs / "openapi-typescript", served.document, "-o", "generated.d.ts", cwd=tmp_path)
        await run(programs / "tsc", "--strict", "--noEmit", "generated.d.ts", cwd=tmp_path)


async def test_a_python_client_uploads_a_document(database: Database, tmp_path: Path) -> None:
    answer = await run_python_client("classifier", "python_upload.py", database, tmp_path)
    content = b"An invoice for paper."
    stored = {
        "file": hashlib.sha256(content).hexdigest(),
        "name": "invoice.txt",
        "media_type": "text/plain",
        "size": len(content),
    }
    assert answer == {"documentos": [{"nome": "invoice.txt", "arquivo": stored}]}


async def test_a_python_client_works(database: Database, tmp_path: Path) -> None:
    answer = await run_python_client("gpu", "python_client.py", database, tmp_path)
    assert answer == {
        "accepted": "QUEUED",
        "shown": 34,
        "listed": True,
        "cancelled": "Job cancelled",
        "missing": [404, "NOT_FOUND"],
        "refused": [401, "API_KEY_REQUIRED"],
    }


async def run_python_client(app: str, program: str, database: Database, folder: Path) -> Any:
    """Generate the client of an application, run a program that uses it, and return what the program prints."""
    tools = await asyncio.to_thread(python_tools)
    shutil.copy(HERE / program, folder)
    async with served_app(app, database, folder) as served:
        await generate_python(served, tools, folder, program)
        return json.loads(await run(tools / "python", program, served.address, served.key, cwd=folder, tools=tools))


async def generate_python(served: ServedApp, tools: Path, folder: Path, *programs: str) -> None:
    """Generate a client, and check its types together with those of the programs that use it."""
    options = ["--path", served.document, "--output-path", folder / "generated", "--meta", "none"]
    output = await run(tools / "openapi-python-client", "generate", *options, cwd=folder, tools=tools)
    assert "Warning" not in output, output
    (folder / "mypy.ini").write_text(MYPY)
    await run(tools / "mypy", "generated", *programs, cwd=folder, tools=tools)


async def test_a_typescript_client_works(database: Database, tmp_path: Path) -> None:
    tools = await asyncio.to_thread(typescript_tools)
    programs = tools / "node_modules" / ".bin"
    (tmp_path / "node_modules").symlink_to(tools / "node_modules")
    shutil.copy(tools / "package.json", tmp_path)
    shutil.copy(HERE / "typescript_client.ts", tmp_path)
    strict = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    (tmp_path / "node.d.ts").write_text("declare const process: { argv: string[] };\n")
    async with served_app("gpu", database, tmp_path) as served:
        await run(programs / "openapi-typescript", served.document, "-o", "generated.d.ts", cwd=tmp_path)
        await run(programs / "tsc", *strict, "typescript_client.ts", "node.d.ts", cwd=tmp_path)
        answer = await run("node", "typescript_client.js", served.address, served.key, cwd=tmp_path)
    assert json.loads(answer) == {
        "accepted": "QUEUED",
        "shown": 34,
        "listed": True,
        "cancelled": "Job cancelled",
        "missing": [404, "NOT_FOUND"],
        "refused": [422, "INVALID_INPUT"],
        "webhook": "COMPLETED",
    }


async def run(*command: Any, cwd: Path, tools: Path | None = None) -> str:
    path = os.pathsep.join(filter(None, [str(tools or ""), os.environ["PATH"]]))
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(cwd)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    output = out.decode()
    if process.returncode != 0:
        pytest.fail(output)
    return output
