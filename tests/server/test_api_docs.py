"""docs/api.md is correct: its calls work, and its tables match the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from retoma.server import json_limits, problems, request_limits
from tests.server.api import Api
from tests.server.test_authorisation import ROUTES

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)


def rows(heading: str) -> list[list[str]]:
    _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    return [row.split(" | ") for row in ROW.findall(rest.partition("\n## ")[0])][1:]


def list_calls() -> list[str]:
    return re.findall(r"^curl .+$", PAGE.read_text(), re.MULTILINE)


async def curl(api: Api, line: str, **variables: str) -> Any:
    """Make the call as curl would and return its answer."""
    for name, value in variables.items():
        line = line.replace(f"${name}", value)
    words = iter(shlex.split(line)[1:])
    method, headers, body, url = None, {}, None, ""
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "--json":
                body = next(words).encode()
                headers["Content-Type"] = "application/json"
            case _:
                url = word.removeprefix("http://127.0.0.1:8765")
    return await api.call(method or ("GET" if body is None else "POST"), url, key=None, headers=headers, content=body)


async def test_every_call_of_the_page_works(api: Api) -> None:
    run = await api.start()
    assert len(list_calls()) >= 8
    for line in list_calls():
        answer = await curl(api, line, KEY=api.key or "", RUN=run)
        assert answer.status_code in (200, 202), f"{line}: {answer.text}"


def test_the_route_table_matches_the_code() -> None:
    listed = {(row[0].strip("`"), row[1].strip("`")) for row in rows("Routes") if row[0].startswith("`")}
    served = {
        (
            f"{route.method} {route.path}",
            str(route.need.scope)
            if route.need and route.need.scope
            else "any key"
            if route.need and route.need.needs_key
            else "none",
        )
        for route in ROUTES
    }
    assert listed == served


def test_the_limits_and_codes_of_the_page_match_the_code() -> None:
    text = PAGE.read_text()
    assert f"nested at most {json_limits.MAX_JSON_DEPTH} levels" in text
    assert f"at most {json_limits.MAX_JSON_BRACKETS:,} arrays and objects" in text
    assert f"at most {request_limits.MAX_BODY_BYTES >> 20} MiB" in text
    assert f"{request_limits.MAX_UNAUTHENTICATED_BODY_BYTES >> 10} KiB" in text
    assert f"within {request_limits.RESPONSE_TIMEOUT_SECONDS:.0f} seconds" in text
    server = Path(problems.__file__).parent
    places = (server, server.parent / "cli")
    sources = "".join(path.read_text() for place in places for path in place.rglob("*.py"))
    codes = {code for row in rows("Errors")[1:] for code in re.findall(r"`([A-Z_]+)`", row[1])}
    derived = {"UNSAFE_URL", "BAD_REQUEST"}  # from the name of the error, and of the status
    assert len(codes) > 10
    assert [code for code in codes - derived if f'"{code}"' not in sources] == []
