"""Structured answers: validated, repaired once, and every call counted."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from retoma.errors import RateLimited
from retoma_apps.providers.llm import InvalidJson, Usage, ask_structured
from retoma_apps.providers.llm.errors import ContentFiltered, CutShort
from retoma_apps.providers.llm.openrouter import OpenRouter
from retoma_apps.providers.llm.schemas import strict_schema
from standins.llm import StandIn
from tests.apps.providers.llm.conftest import OPTIONS, TEXT, Label, make_messages


async def test_a_good_answer_needs_no_repair(standin: StandIn, llm: OpenRouter) -> None:
    result = await ask_structured(llm, make_messages(), Label, **OPTIONS)
    assert result.value == Label(label="sentença", confidence=1)
    assert len(standin.requests) == 1
    assert result.usage == result.reply.usage


@pytest.mark.parametrize("fault", ["invalid_json", "misfit"])
async def test_an_invalid_answer_is_repaired_with_the_error_and_both_are_charged(
    standin: StandIn, llm: OpenRouter, fault: str
) -> None:
    setattr(standin.faults, fault, 1)
    result = await ask_structured(llm, make_messages(), Label, **OPTIONS)
    assert result.value.label == "sentença"
    assert result.usage.cost == standin.cost
    assert result.usage.prompt_tokens > result.reply.usage.prompt_tokens
    first, second = (request["messages"] for request in standin.requests)
    assert second[: len(first)] == first
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "user"]


async def test_the_repair_prompt_names_the_mistake(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.misfit = 1
    await ask_structured(llm, make_messages(), Label, **OPTIONS)
    message = standin.requests[1]["messages"][-1]["content"]
    assert "label: Field required" in message
    assert "surprise: Extra inputs are not permitted" in message
    assert TEXT not in message


async def test_an_answer_that_stays_invalid_is_an_error_with_its_total_cost(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.misfit = 2
    with pytest.raises(InvalidJson, match="2 answers") as raised:
        await ask_structured(llm, make_messages(), Label, **OPTIONS)
    assert raised.value.code == "LLM_INVALID_JSON"
    assert raised.value.usage.cost == standin.cost > 0
    assert len(standin.requests) == 2


async def test_repairs_can_be_disabled(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.invalid_json = 1
    with pytest.raises(InvalidJson):
        await ask_structured(llm, make_messages(), Label, repairs=0, **OPTIONS)
    assert len(standin.requests) == 1


async def test_a_truncated_answer_is_not_repaired(standin: StandIn, llm: OpenRouter) -> None:
    standin.faults.cut = 1
    with pytest.raises(CutShort):
        await ask_structured(llm, make_messages(), Label, **OPTIONS)
    assert len(standin.requests) == 1


async def test_a_refused_repair_still_reports_the_cost_of_the_first_answer(standin: StandIn, llm: OpenRouter) -> None:
    def then_filtered(_: object) -> str:
        standin.faults.filtered = int(standin.faults.misfit == 0)
        return "{}"

    standin.faults.misfit, standin._answer = 1, then_filtered
    with pytest.raises(ContentFiltered) as raised:
        await ask_structured(llm, make_messages(), Label, **OPTIONS)
    assert raised.value.usage.cost == standin.cost
    assert raised.value.usage != Usage()


async def test_usage_before_a_rate_limit_is_reported_at_once(standin: StandIn, llm: OpenRouter) -> None:
    def then_limited(_: object) -> str:
        standin.faults.rate_limited = 1
        return "{}"

    paid: list[Usage] = []
    standin._answer = then_limited
    with pytest.raises(RateLimited):
        await ask_structured(llm, make_messages(), Label, on_usage=paid.append, **OPTIONS)
    assert [usage.cost for usage in paid] == [standin.cost]


async def test_each_paid_call_is_reported_once(standin: StandIn, llm: OpenRouter) -> None:
    paid: list[Usage] = []
    standin.faults.misfit = 1
    result = await ask_structured(llm, make_messages(), Label, on_usage=paid.append, **OPTIONS)
    assert len(paid) == 2
    assert paid[0] + paid[1] == result.usage


class Inner(BaseModel):
    page: int = 1


class Outer(BaseModel):
    parts: list[Inner]
    first: Inner | None = None


def test_a_strict_schema_requires_every_field_at_every_depth() -> None:
    schema = strict_schema(Outer)
    assert schema["required"] == ["parts", "first"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Inner"]["required"] == ["page"]
    assert schema["$defs"]["Inner"]["additionalProperties"] is False


class Limited(BaseModel):
    default: Annotated[str, Field(min_length=1, max_length=9)] = "a"
    pages: list[Annotated[int, Field(ge=1)]] = Field(max_length=3)


def test_a_strict_schema_has_no_limits_and_keeps_fields_with_the_same_names() -> None:
    fields = strict_schema(Limited)["properties"]
    assert fields["default"] == {"title": "Default", "type": "string"}
    assert fields["pages"] == {"title": "Pages", "type": "array", "items": {"type": "integer"}}
