"""schemathesis, from the OpenAPI document alone: it finds nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import auth
from retoma.settings import Settings
from tests.server.conftest import OpenApi

SECONDS = 3600
HOOKS = Path(__file__).with_name("urls_for_schemathesis.py")
# Rules that the document cannot state, so a request that is valid by it may get 422: the inputs of a schedule fit its
# pipeline, a currency has a rate and its date, and the fields of a connection are those of its service.
CONFIGURATION = "".join(
    f"""
[[operations]]
include-name = "{operation}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]
"""
    for operation in (
        "POST /api/v1/schedules",
        "PUT /api/v1/tenants/{tenant}/money",
        "PUT /api/v1/connections/{tenant}/{service}",
    )
)


async def test_schemathesis_finds_nothing(open_api: OpenApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000_000)
    async with open_api(rate_limit_per_minute=1_000_000) as api:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        async with run_server(api.server, listening, settings):
            output = await schemathesis(f"{get_address(listening)}/api/v1/openapi.json", api.key or "", tmp_path)
        # It got beyond the door and the validation.
        assert len(await api.client.runs.list(limit=100)) > 5, output


async def schemathesis(document: str, key: str, folder: Path, *more: str) -> str:
    command = [Path(sys.executable).with_name("schemathesis"), "run", document, "-H", f"X-API-Key: {key}"]
    options = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "7", "--workers", "1"]
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        *options,
        *more,
        "--generation-deterministic",
        *("--exclude-path-regex", "/live$"),  # what it asks for there never ends
        "--no-color",
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": HOOKS.stem, "PYTHONPATH": str(HOOKS.parent)},
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
    assert process.returncode == 0, output
    return output
