"""The stand-in itself: its checks, counts and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from retoma_apps.providers.llm.openrouter import OpenRouter
from standins.llm import StandIn
from tests.apps.providers.llm.conftest import KEY, OPTIONS, Label, make_messages


async def call(url: str, method: str, path: str, body: Any = None, key: str = KEY) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        headers = {"authorization": f"Bearer {key}"}
        return await outgoing.request(method, f"{url}/{path}", json=body, headers=headers)


async def test_requests_without_the_key_are_refused(base_url: str) -> None:
    assert (await call(base_url, "GET", "key", key="x")).status == 401
    assert (await call(base_url, "GET", "key")).json()["data"]["usage"] == 0


async def test_a_request_with_an_invalid_structure_is_refused(base_url: str) -> None:
    loose = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    message = {"role": "user", "content": "x"}
    bodies: list[Any] = [{}, [], {"model": "m"}, {"model": "m", "messages": [{}]}]
    bodies.append({"model": "m", "messages": [message], "response_format": loose})
    text = {"type": "string", "maxLength": 9}
    limited = {"type": "object", "properties": {"a": text}, "required": ["a"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"schema": limited}}
    bodies.append({"model": "m", "messages": [message], "response_format": wanted})
    for body in bodies:
        assert (await call(base_url, "POST", "chat/completions", body)).status == 400


@pytest.mark.parametrize(
    ("values", "status", "finish_reason"),
    [({"temperature": 0}, 404, None), ({"max_tokens": 400}, 200, "length"), ({"max_tokens": 4_000}, 200, "stop")],
)
async def test_a_reasoning_model_takes_no_temperature_and_needs_extra_tokens(
    base_url: str, values: dict[str, Any], status: int, finish_reason: str | None
) -> None:
    body = {"model": "openai/gpt-5-mini", "messages": [{"role": "user", "content": "x"}]}
    answer = await call(
        base_url, "POST", "chat/completions", {**body, **values, "provider": {"require_parameters": True}}
    )
    assert answer.status == status
    assert answer.json().get("choices", [{}])[0].get("finish_reason") == finish_reason


async def test_the_cost_of_an_answer_can_be_queried_afterwards(base_url: str, llm: OpenRouter) -> None:
    reply = await llm.ask(make_messages(), **OPTIONS)
    body = (await call(base_url, "GET", f"generation?id={reply.id}")).json()["data"]
    assert body["prompt_tokens"] == reply.usage.prompt_tokens
    assert (await call(base_url, "GET", "generation?id=gen-none")).status == 404


async def test_faults_can_be_configured_over_http(standin: StandIn, base_url: str) -> None:
    control = base_url.removesuffix("/api/v1") + "/standin"
    body = await call(control, "PUT", "faults", {"rate_limited": 3, "shares": {"html": 0.5}})
    assert body.json()["rate_limited"] == 3
    assert standin.faults.shares == {"html": 0.5}
    assert (await call(control, "PUT", "faults", {"no_such": 1})).status == 400
    assert (await call(control, "PUT", "faults", {"shares": {"no_such": 1}})).status == 400
    assert (await call(control, "GET", "tally")).json()["requests"] == 0


async def test_a_fault_rate_is_deterministic_for_a_seed() -> None:
    def struck(seed: int) -> list[bool]:
        standin = StandIn(seed=seed)
        standin.faults.shares = {"broken": 0.3}
        return [standin._strikes("broken") for _ in range(100)]

    assert struck(1) == struck(1) != struck(2)
    assert 15 < sum(struck(1)) < 45


async def test_the_ledger_gets_a_line_for_each_answer(standin: StandIn, llm: OpenRouter, tmp_path: Path) -> None:
    standin._ledger = tmp_path / "ledger"
    await llm.ask(make_messages(), schema=Label, **OPTIONS)
    [line] = [json.loads(line) for line in standin._ledger.read_text().splitlines()]
    assert (line["finish_reason"], line["model"]) == ("stop", "test/model")
