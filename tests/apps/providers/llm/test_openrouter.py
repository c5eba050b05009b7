"""The OpenRouter client against the stand-in: every rejection, every broken answer, and the cost of each."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.llm import InvalidJson, Usage
from retoma_apps.providers.llm.errors import (
    ContentFiltered,
    CutShort,
    InvalidAnswer,
    LlmError,
    LlmRefused,
    LlmUnavailable,
)
from retoma_apps.providers.llm.openrouter import OpenRouter
from standins.llm import StandIn
from tests.apps.providers.llm.conftest import KEY, OPTIONS, Label, make_messages, settings_for


async def test_a_request_with_a_schema_returns_json_with_its_cost(standin: StandIn, llm: OpenRouter) -> None:
    reply = await llm.ask(make_messages(), schema=Label, **OPTIONS)
    assert reply.json == {"label": "sentença", "confidence": 1}
    assert (reply.model, reply.finish_reason, reply.id[:4]) == ("test/model", "stop", "gen-")
    assert reply.usage.prompt_tokens > 50
    assert reply.usage.cost == standin.cost == reply.usage.prompt_tokens + reply.usage.completion_tokens


async def test_a_schema_is_sent_as_strict_and_only_to_models_that_support_it(standin: StandIn, llm: OpenRouter) -> None:
    await llm.ask(make_messages(), schema=Label, **OPTIONS)
    [sent] = standin.requests
    assert sent["provider"] == {"require_parameters": True}
    wanted = sent["response_format"]["json_schema"]
    assert (wanted["name"], wanted["strict"]) == ("Label", True)
    assert wanted["schema"]["additionalProperties"] is False
    assert wanted["schema"]["required"] == ["label", "confidence"]


async def test_a_reasoning_model_gets_extra_tokens_and_no_temperature(standin: StandIn, llm: OpenRouter) -> None:
    reply = await llm.ask(make_messages(), schema=Label, **OPTIONS | {"model": "openai/gpt-5-mini"})
    assert reply.json["label"] == "sentença"
    assert standin.requests[0]["max_tokens"] > 1_000


async def test_without_a_schema_the_text_is_returned_even_if_truncated(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.cut = 1
    reply = await llm.ask(make_messages(), **OPTIONS)
    assert (reply.json, reply.finish_reason) == (None, "length")
    assert "response_format" not in standin.requests[0]


@pytest.mark.parametrize(
    ("fault", "error", "code", "is_paid"),
    [
        ("html", InvalidAnswer, "LLM_INVALID_ANSWER", False),
        ("truncated_body", InvalidAnswer, "LLM_INVALID_ANSWER", False),
        ("error_inside", LlmUnavailable, "LLM_UNAVAILABLE", True),
        ("invalid_json", InvalidJson, "LLM_INVALID_JSON", True),
        ("cut", CutShort, "LLM_CUT_SHORT", True),
        ("filtered", ContentFiltered, "LLM_CONTENT_FILTERED", True),
    ],
)
async def test_each_fault_has_its_own_error_and_cost(
    standin: StandIn, llm: OpenRouter, fault: str, error: type[Exception], code: str, is_paid: bool
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(error) as raised:
        await llm.ask(make_messages(), schema=Label, **OPTIONS)
    failed: Any = raised.value
    assert failed.code == code
    assert failed.usage.cost == (standin.cost if is_paid else 0)
    assert isinstance(failed, GiveUp) is (fault == "filtered")
    assert (await llm.ask(make_messages(), schema=Label, **OPTIONS)).json["label"] == "sentença"


async def test_an_answer_that_does_not_arrive_in_time_may_be_requested_again(standin: StandIn, base_url: str) -> None:
    hasty = OpenRouter(settings_for(base_url, timeout_seconds=1))
    standin.faults.hangs = 1
    with pytest.raises(LlmUnavailable) as raised:
        await hasty.ask(make_messages(), schema=Label, **OPTIONS)
    assert raised.value.code == "LLM_TIMEOUT"
    await hasty.close()
    standin.release()


async def test_an_unreachable_provider_counts_as_down() -> None:
    away = OpenRouter(settings_for("http://127.0.0.1:9/api/v1"))
    with pytest.raises(ProviderDown):
        await away.ask(make_messages(), **OPTIONS)
    await away.close()


@pytest.mark.parametrize("fault", ["broken", "lost_replies"])
async def test_a_provider_that_fails_before_any_model_starts_counts_as_down(
    standin: StandIn, llm: OpenRouter, fault: str
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(ProviderDown):
        await llm.ask(make_messages(), schema=Label, **OPTIONS)


async def test_a_storm_of_429_pauses_for_as_long_as_the_provider_says(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.rate_limited, standin.faults.retry_after = 20, 7
    for _ in range(20):
        with pytest.raises(RateLimited) as raised:
            await llm.ask(make_messages(), schema=Label, **OPTIONS)
        assert raised.value.delay == timedelta(seconds=7)
    assert (await llm.ask(make_messages(), schema=Label, **OPTIONS)).json["label"] == "sentença"
    assert standin.tally()["requests"] == 1


async def test_an_empty_account_pauses_the_pool_and_fails_no_document(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.out_of_credit = True
    with pytest.raises(ProviderRejected, match="add credit"):
        await llm.ask(make_messages(), **OPTIONS)


async def test_without_a_key_nothing_is_sent(standin: StandIn, base_url: str) -> None:
    keyless = OpenRouter(settings_for(base_url, api_key=""))
    with pytest.raises(ProviderRejected, match="OPENROUTER_API_KEY"):
        await keyless.ask(make_messages(), **OPTIONS)
    assert standin.tally()["requests"] == 0
    await keyless.close()


async def test_a_wrong_key_pauses_the_pool_and_is_never_shown(base_url: str) -> None:
    unauthorised = OpenRouter(settings_for(base_url, api_key="sk-or-WRONGCANARY"))
    with pytest.raises(ProviderRejected, match="OPENROUTER_API_KEY") as raised:
        await unauthorised.ask(make_messages(), **OPTIONS)
    assert "CANARY" not in repr(raised.value) + repr(unauthorised._settings)
    await unauthorised.close()


LATE, DOWN, LIMITED, ACCOUNT, FINAL = LlmUnavailable, ProviderDown, RateLimited, ProviderRejected, LlmRefused


@pytest.mark.parametrize(
    ("status", "kind", "error", "code"),
    [
        (400, "invalid_request", FINAL, "LLM_BAD_REQUEST"),
        (400, "context_length_exceeded", FINAL, "LLM_TOO_LONG"),
        (400, "refusal", ContentFiltered, "LLM_CONTENT_FILTERED"),
        (401, None, ACCOUNT, None),
        (402, None, ACCOUNT, None),
        (403, None, ACCOUNT, None),
        (403, "content_policy_violation", ContentFiltered, "LLM_CONTENT_FILTERED"),
        (404, None, FINAL, "LLM_NO_SUCH_MODEL"),
        (408, None, LATE, "LLM_TIMEOUT"),
        (412, "precondition_failed", FINAL, "LLM_BAD_REQUEST"),
        (413, None, FINAL, "LLM_TOO_LONG"),
        (422, "unprocessable", FINAL, "LLM_BAD_REQUEST"),
        (429, None, LIMITED, None),
        (500, "server", DOWN, None),
        (500, "rate_limit_exceeded", LIMITED, None),
        (502, None, DOWN, None),
        (503, "provider_overloaded", DOWN, None),
        (504, None, LATE, "LLM_TIMEOUT"),
        (502, "timeout", LATE, "LLM_TIMEOUT"),
        (599, "a word of tomorrow", DOWN, None),
    ],
)
@pytest.mark.parametrize("place", ["status", "body", "choice"])
async def test_an_error_means_the_same_in_status_body_and_choice(
    llm: OpenRouter,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    kind: str | None,
    error: type[Exception],
    code: str | None,
    place: str,
) -> None:
    error_body: dict[str, Any] = {
        "error": {"code": status, "message": f"key {KEY} no", "metadata": {"error_type": kind}}
    }
    if place == "choice":
        error_body = {"choices": [error_body | {"finish_reason": "error", "message": {"content": ""}}]}
    answers(monkeypatch, llm, Response(status if place == "status" else 200, {}, json.dumps(error_body).encode()))
    if error is ProviderDown and place != "status":  # the model had begun, so this text may be at fault
        error, code = LlmUnavailable, "LLM_UNAVAILABLE"
    with pytest.raises(error) as raised:
        await llm.ask(make_messages(), **OPTIONS)
    assert type(raised.value) is error
    assert getattr(raised.value, "code", None) == code
    assert "CANARY" not in str(raised.value)


async def test_moderation_is_reported_without_the_flagged_words(
    llm: OpenRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {"reasons": ["violence"], "flagged_input": "secret of a citizen", "provider_name": "x"}
    reported = {"error": {"code": 403, "message": "secret of a citizen", "metadata": metadata}}
    answers(monkeypatch, llm, Response(403, {}, json.dumps(reported).encode()))
    with pytest.raises(ContentFiltered) as raised:
        await llm.ask(make_messages(), **OPTIONS)
    assert "citizen" not in str(raised.value)


async def test_an_overloaded_provider_is_not_called_until_the_time_it_names(
    llm: OpenRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, llm, Response(503, {"retry-after": "30"}, b""))
    with pytest.raises(RateLimited) as raised:
        await llm.ask(make_messages(), **OPTIONS)
    assert raised.value.delay == timedelta(seconds=30)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"choices": []}',
        b'{"choices": 7}',
        b'{"choices": [null]}',
        b'{"choices": [{"finish_reason": "stop"}]}',
        b'{"choices": [{"finish_reason": "stop", "message": {"content": null}}]}',
        b'{"choices": [{"finish_reason": "stop", "message": {"content": ["x"]}}], "usage": {"cost": "much"}}',
    ],
)
async def test_an_answer_with_an_unexpected_structure_is_a_retryable_error(
    llm: OpenRouter, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    answers(monkeypatch, llm, Response(200, {}, body))
    with pytest.raises(InvalidAnswer) as raised:
        await llm.ask(make_messages(), **OPTIONS)
    assert isinstance(raised.value, LlmError)


async def test_an_answer_over_the_size_limit_is_invalid(llm: OpenRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, llm, Response(200, {}, b'{"choices": [', is_cut=True))
    with pytest.raises(InvalidAnswer, match="too long"):
        await llm.ask(make_messages(), **OPTIONS)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (0.00014, 140),
        (0, 0),
        (1e-9, 0),
        (0.0000015, 2),
        (12.345678, 12_345_678),
        (None, None),
        ("0.1", None),
        (-1, None),
        (True, None),
        (1e300, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
async def test_a_cost_is_in_millionths_and_unknown_rather_than_wrong(
    llm: OpenRouter, monkeypatch: pytest.MonkeyPatch, cost: object, expected: int | None
) -> None:
    answers(monkeypatch, llm, completion("hi", {"prompt_tokens": 3, "completion_tokens": -4, "cost": cost}))
    reply = await llm.ask(make_messages(), **OPTIONS)
    assert reply.usage == Usage(3, 0, expected)


@pytest.mark.parametrize(
    "text", ['```json\n{"label": "ofício"}\n```', '```\n{"label": "ofício"}```', ' {"label":"ofício"} ']
)
async def test_fenced_json_is_parsed_as_json(llm: OpenRouter, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    answers(monkeypatch, llm, completion(text))
    assert (await llm.ask(make_messages(), schema=Label, **OPTIONS)).json == {"label": "ofício"}


def test_costs_add_up_and_one_unknown_cost_makes_the_sum_unknown() -> None:
    assert Usage(1, 2, 3) + Usage(10, 20, 30) == Usage(11, 22, 33)
    assert Usage(1, 2, 3) + Usage(1, 1, None) == Usage(2, 3, None)


def completion(text: str, usage: dict[str, Any] | None = None) -> Response:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return Response(200, {}, json.dumps({"id": "gen-1", "model": "m", "choices": [choice], "usage": usage}).encode())


def answers(monkeypatch: pytest.MonkeyPatch, llm: OpenRouter, answer: Response) -> None:
    async def request(*_: object, **__: object) -> Response:
        return answer

    monkeypatch.setattr(llm._outgoing, "request", request)
