"""Charges of attempts: recorded whatever the outcome, priced once, and summed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retoma import Context, GiveUp, Items, Pipeline, Retry, RetryLater, seconds
from retoma.define.charge import Charge
from retoma.errors import DatabaseUnavailable, DefinitionError, InvalidInput
from retoma.store import charges
from retoma.testing import Sandbox
from retoma.worker.charge_buffer import ChargeBuffer
from tests.conftest import OpenSandbox
from tests.engine.builders import pass_heartbeat_timeout, run_claims

LLM = "openrouter"


alone = Pipeline("alone", retry=Retry(0))


@alone.step(isolation="process")
def parsed(*, ctx: Context) -> int:
    ctx.charge("ocr", "page", units=3, micros=9)
    raise ValueError("no text")


def make_charging_pipeline(error: Exception | None = None, retries: int = 0) -> Pipeline:
    """One step that charges a thousand tokens and then raises, if there is something to raise."""
    pipeline = Pipeline("ask", retry=Retry(retries, delays=[5], jitter=0))

    @pipeline.step
    async def label(*, ctx: Context) -> int:
        ctx.charge(LLM, "small", tokens_in=1_000, tokens_out=10)
        if error is not None:
            raise error
        return 1

    return pipeline


async def make_price(sandbox: Sandbox) -> None:
    """$0.15 for a million tokens in, $0.60 for a million out."""
    await sandbox.client.costs.set_price(LLM, "small", tokens_in=150_000, tokens_out=600_000)


async def test_an_attempt_is_charged_at_the_current_price(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox:
        await make_price(sandbox)
        run = (await sandbox.run("ask")).id
        (charge,) = await sandbox.client.costs.list_charges(run)
        assert (charge.step, charge.item, charge.attempt, charge.revision) == ("label", "", 1, 1)
        assert (charge.provider, charge.resource, charge.tokens_in, charge.tokens_out) == (LLM, "small", 1_000, 10)
        assert (charge.micros, charge.price) == (150 + 6, 1)


@pytest.mark.parametrize(
    ("error", "attempts"), [(ValueError("no"), [1, 2]), (GiveUp("never"), [1]), (RetryLater(5), [1, 1, 1])]
)
async def test_attempts_that_fail_are_charged_too(
    open_sandbox: OpenSandbox, error: Exception, attempts: list[int]
) -> None:
    async with open_sandbox(make_charging_pipeline(error, retries=1)) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("ask")).id
        for _ in attempts:
            await run_claims(worker, await worker.claim(1))
            await sandbox.clock.advance(seconds(6))
            await release_due_jobs(sandbox)
        assert [charge.attempt for charge in await sandbox.client.costs.list_charges(run)] == attempts


async def release_due_jobs(sandbox: Sandbox) -> None:
    async with sandbox.database.connection() as connection:
        await connection.execute("select retoma.release_due_jobs(100)")


async def test_an_attempt_whose_lease_has_expired_is_still_charged(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("ask")).id
        outcomes = await worker.attempt(await worker.claim(1))
        await pass_heartbeat_timeout(sandbox)
        async with sandbox.manual_worker() as heir:
            await run_claims(heir, await heir.claim(1))
        with pytest.raises(Exception, match="is gone"):
            await worker.record_outcomes(outcomes)
        assert len(await sandbox.client.costs.list_charges(run)) == 2


async def test_charges_of_an_isolated_step_arrive_with_its_outcome(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(alone) as sandbox:
        ended = await sandbox.run(alone)
        assert ended.state == "failed"
        assert [(charge.units, charge.micros) for charge in await sandbox.client.costs.list_charges(ended.id)] == [
            (3, 9)
        ]


async def test_an_ended_run_has_all_of_its_charges(open_sandbox: OpenSandbox) -> None:
    """They are written before the outcome: an outcome that is committed has its charges."""
    async with open_sandbox(make_charging_pipeline()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("ask")).id
        outcomes = await worker.attempt(await worker.claim(1))
        assert await sandbox.client.costs.list_charges(run) == []
        await worker.record_outcomes(outcomes)
        assert (await sandbox.client.runs.get(run)).is_over
        assert len(await sandbox.client.costs.list_charges(run)) == 1


async def test_an_amount_reported_by_a_provider_is_used_unchanged(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("ask")

    @pipeline.step
    def label(*, ctx: Context) -> int:
        ctx.charge(LLM, "small", tokens_in=1_000, micros=77)
        return 1

    async with open_sandbox(pipeline) as sandbox:
        await make_price(sandbox)
        (charge,) = await sandbox.client.costs.list_charges((await sandbox.run("ask")).id)
        assert (charge.micros, charge.price) == (77, None)


async def test_a_new_price_does_not_change_past_charges(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox:
        await make_price(sandbox)
        first = (await sandbox.run("ask")).id
        await make_price(sandbox)
        assert [price.version for price in await sandbox.client.costs.list_prices()] == [1], "it says the same"
        dearer = await sandbox.client.costs.set_price(LLM, "small", tokens_in=1_500_000)
        assert dearer.version == 2
        second = (await sandbox.run("ask")).id
        found = [
            *await sandbox.client.costs.list_charges(first),
            *await sandbox.client.costs.list_charges(second),
        ]
        assert [(charge.micros, charge.price) for charge in found] == [(156, 1), (1_500, 2)]


async def test_usage_without_a_price_is_counted_and_not_treated_as_free(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox:
        run = (await sandbox.run("ask")).id
        (total,) = await sandbox.client.costs.get_totals(run=run, by=())
        assert (total.charges, total.tokens_in, total.micros, total.unpriced) == (1, 1_000, 0, 1)


def films() -> Pipeline:
    pipeline = Pipeline("film")

    @pipeline.step
    def scenes(*, ctx: Context) -> list[int]:
        ctx.charge(LLM, "small", micros=5)
        return [1, 2]

    @pipeline.each(scenes)
    def voice(scene: int, *, ctx: Context) -> int:
        ctx.charge("speech", "anna", units=2.5, micros=10 * scene)
        ctx.charge("speech", "anna", units=0.5, micros=1)
        return scene

    @pipeline.step
    def film(voice: Items[int]) -> int:
        return len(voice)

    return pipeline


async def test_charges_are_summed_by_item_step_run_and_tenant(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films()) as sandbox:
        mine, theirs = [(await sandbox.run("film", tenant=name)).id for name in ("a", "b")]

        async def sums(*by: Any, **given: Any) -> dict[Any, int]:
            found = await sandbox.client.costs.get_totals(by=by, **given)
            return {tuple(getattr(total, name) for name in by): total.micros for total in found}

        assert await sums("step", "item", run=mine) == {("voice", "2"): 21, ("voice", "1"): 11, ("scenes", ""): 5}
        assert await sums("step", run=mine) == {("voice",): 32, ("scenes",): 5}
        assert await sums("run") == {(mine,): 37, (theirs,): 37}
        assert await sums("tenant") == {("a",): 37, ("b",): 37}
        assert await sums("provider", "resource", tenant="a") == {("speech", "anna"): 32, (LLM, "small"): 5}
        (speech,) = [total for total in await sandbox.client.costs.get_totals(by=["provider"]) if total.provider != LLM]
        assert speech.units == 12.0


async def test_the_spending_of_a_tenant_is_summed_since_a_time(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films()) as sandbox:
        await sandbox.run("film", tenant="a")
        await sandbox.clock.advance(timedelta(days=1))
        midnight = await sandbox.clock.now()
        await sandbox.run("film", tenant="a")
        await sandbox.run("film", tenant="b")
        assert await sandbox.client.costs.get_spent("a") == 74
        assert await sandbox.client.costs.get_spent("a", midnight) == 37
        assert await sandbox.client.costs.get_spent(since=midnight) == 74
        assert await sandbox.client.costs.get_spent("nobody") == 0


async def test_a_page_of_charges_follows_the_previous_one(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films()) as sandbox:
        run = (await sandbox.run("film")).id
        first = await sandbox.client.costs.list_charges(run, limit=3)
        rest = await sandbox.client.costs.list_charges(run, after=first[-1].id, limit=3)
        assert (len(first), len(rest)) == (3, 2)
        assert not {charge.id for charge in first} & {charge.id for charge in rest}


async def test_charges_that_could_not_be_written_are_written_once_later(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("ask")).id
        (claim,) = await worker.claim(1)
        ledger = ChargeBuffer(sandbox.database)
        ledger.add(claim, Charge(LLM, "small", tokens_in=1))
        write = charges.write

        async def lost_answer(*given: Any) -> None:
            await write(*given)
            raise DatabaseUnavailable("it does not answer")

        monkeypatch.setattr(charges, "write", lost_answer)
        await ledger.flush()
        monkeypatch.undo()
        ledger.add(claim, Charge(LLM, "small", tokens_in=2))
        await ledger.flush()
        await ledger.flush()
        assert [charge.tokens_in for charge in await sandbox.client.costs.list_charges(run)] == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"provider": ""},
        {"resource": "\0"},
        {"tokens_in": -1},
        {"tokens_out": 1.5},
        {"units": float("nan")},
        {"units": -1},
        {"micros": True},
        {"micros": 10**14},
    ],
)
def test_an_invalid_charge_is_rejected_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=rf"charge\({next(iter(wrong))}="):
        Charge(**({"provider": "p", "resource": "w"} | wrong))


async def test_a_negative_price_is_rejected(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_charging_pipeline()) as sandbox:
        with pytest.raises(InvalidInput, match="unit is -1"):
            await sandbox.client.costs.set_price(LLM, "small", unit=-1)
