"""Pipelines whose steps do what a fault needs: wait until the test releases them, block the loop, or count."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bench.chaos import application as chaos
from bench.chaos import execution_log, fake_provider
from bench.chaos.application import Inputs, StepOutput, record_success
from bench.chaos.fake_provider import FakeProvider
from bench.chaos.model import PIPELINES, Story
from retoma import App, Context, Pipeline, PollResult, Pool, Retry, minutes


def release_file(nonce: str) -> Path:
    """The file whose appearance lets the held steps of this run end."""
    return execution_log.get_path().with_name(f"go-{nonce}")


held = Pipeline("held", inputs=Inputs, retry=Retry(0))


@held.step
async def waiting(nonce: str, *, ctx: Context) -> StepOutput:
    token = execution_log.record_start(ctx, os.getpid())
    while not release_file(nonce).exists():  # noqa: ASYNC110  (another process makes it)
        await asyncio.sleep(0.01)
    return record_success(ctx, token, nonce)


@held.step
async def afterwards(waiting: StepOutput, *, ctx: Context) -> StepOutput:
    return record_success(ctx, execution_log.record_start(ctx, os.getpid()), waiting)


blocking = Pipeline("blocking", inputs=Inputs, retry=Retry(0))


@blocking.step
async def blocked(nonce: str, *, ctx: Context) -> StepOutput:
    token = execution_log.record_start(ctx, os.getpid())
    while not release_file(nonce).exists():
        time.sleep(0.01)  # noqa: ASYNC251  (that is the mistake)
    return record_success(ctx, token, nonce)


outsourced = Pipeline("outsourced", inputs=Inputs, retry=Retry(0))


@outsourced.step(pool=Pool("bench", capacity=1))
async def crafted(nonce: str, *, provider: FakeProvider, ctx: Context) -> StepOutput:
    async def submit() -> dict[str, str]:
        return {"handle": await provider.submit(ctx), "nonce": nonce}

    crafted = await ctx.external(
        submit,
        find=find_work,
        poll=poll_work,
        cancel=cancel_work,
        key=f"{nonce} {ctx.effect_key}",
        poll_interval=0.1,
        total_timeout=minutes(10),
    )
    return record_success(ctx, execution_log.record_start(ctx, os.getpid()), nonce, crafted)


async def find_work(key: str) -> dict[str, str] | None:
    nonce, _, effect_key = key.partition(" ")
    handle = await FakeProvider().find(effect_key)
    return None if handle is None else {"handle": handle, "nonce": nonce}


async def poll_work(external_work: dict[str, str]) -> PollResult:
    """Return the test's answer to a poll; a test that holds it back delays the answer."""
    nonce, work = external_work["nonce"], fake_provider.Work(external_work["handle"])
    work.record("seen")
    output = answer_file(nonce).read_text() if answer_file(nonce).exists() else "running"
    poll_marker(nonce, os.getpid()).touch()
    while hold_file(nonce).exists():  # noqa: ASYNC110  (another process removes it)
        await asyncio.sleep(0.01)
    return PollResult(output, result=fake_provider.result_of(work.key))  # type: ignore[arg-type]


async def cancel_work(external_work: dict[str, str]) -> None:
    fake_provider.Work(external_work["handle"]).record("cancelled")
    answer_file(external_work["nonce"]).write_text("cancelled")


def answer_file(nonce: str) -> Path:
    return execution_log.get_path().with_name(f"says-{nonce}")


def hold_file(nonce: str) -> Path:
    return execution_log.get_path().with_name(f"holds-{nonce}")


def poll_marker(nonce: str, pid: int) -> Path:
    return execution_log.get_path().with_name(f"asked-{nonce}-{pid}")


def held_model(story: Story) -> None:
    story.step("afterwards", story.step("waiting", story.nonce))


def blocking_model(story: Story) -> None:
    story.step("blocked", story.nonce)


def outsourced_model(story: Story) -> None:
    story.step("crafted", story.nonce, fake_provider.result_of(fake_provider.key_of(story.run, "crafted")))


PIPELINES |= {"held": held_model, "blocking": blocking_model, "outsourced": outsourced_model}
app = App(
    "faults",
    pipelines=[*chaos.app.pipelines.values(), held, blocking, outsourced],
    resources={"provider": FakeProvider()},
)
