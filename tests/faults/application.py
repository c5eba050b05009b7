"""Pipelines whose steps do what a fault needs: wait until the test lets them go, block the loop, or count."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bench.chaos import application as chaos
from bench.chaos import farm, ledger
from bench.chaos.application import Given, Made, done
from bench.chaos.farm import Farm
from bench.chaos.model import PIPELINES, Story
from retoma import App, Context, Pipeline, Pool, Report, Retry, minutes


def go(nonce: str) -> Path:
    """The file whose appearance lets the held steps of this run end."""
    return ledger.place().with_name(f"go-{nonce}")


held = Pipeline("held", inputs=Given, retry=Retry(0))


@held.step
async def waiting(nonce: str, *, ctx: Context) -> Made:
    token = ledger.began(ctx, os.getpid())
    while not go(nonce).exists():  # noqa: ASYNC110  (another process makes it)
        await asyncio.sleep(0.01)
    return done(ctx, token, nonce)


@held.step
async def afterwards(waiting: Made, *, ctx: Context) -> Made:
    return done(ctx, ledger.began(ctx, os.getpid()), waiting)


blocking = Pipeline("blocking", inputs=Given, retry=Retry(0))


@blocking.step
async def blocked(nonce: str, *, ctx: Context) -> Made:
    token = ledger.began(ctx, os.getpid())
    while not go(nonce).exists():
        time.sleep(0.01)  # noqa: ASYNC251  (that is the mistake)
    return done(ctx, token, nonce)


outsourced = Pipeline("outsourced", inputs=Given, retry=Retry(0))


@outsourced.step(pool=Pool("bench", capacity=1))
async def crafted(nonce: str, *, farm: Farm, ctx: Context) -> Made:
    handle = await ctx.once("submit", lambda: farm.submit(ctx), reconcile=lambda: farm.find(ctx))
    outside = {"handle": handle, "nonce": nonce}
    crafted = await ctx.external(outside, poll=asked_after, cancel=given_notice, every=0.1, total=minutes(10))
    return done(ctx, ledger.began(ctx, os.getpid()), nonce, crafted)


async def asked_after(outside: dict[str, str]) -> Report:
    """What the test says of the work when it is asked after; a test that holds it back lets the answer come late."""
    nonce = outside["nonce"]
    said = says(nonce).read_text() if says(nonce).exists() else "running"
    asked(nonce, os.getpid()).touch()
    while holds(nonce).exists():  # noqa: ASYNC110  (another process removes it)
        await asyncio.sleep(0.01)
    return Report(said, result=farm.worth(farm.Work(outside["handle"]).key))  # type: ignore[arg-type]


async def given_notice(outside: dict[str, str]) -> None:
    says(outside["nonce"]).write_text("cancelled")


def says(nonce: str) -> Path:
    return ledger.place().with_name(f"says-{nonce}")


def holds(nonce: str) -> Path:
    return ledger.place().with_name(f"holds-{nonce}")


def asked(nonce: str, pid: int) -> Path:
    return ledger.place().with_name(f"asked-{nonce}-{pid}")


def held_model(story: Story) -> None:
    story.step("afterwards", story.step("waiting", story.nonce))


def blocking_model(story: Story) -> None:
    story.step("blocked", story.nonce)


def outsourced_model(story: Story) -> None:
    story.step("crafted", story.nonce, farm.worth(farm.key_of(story.run, "crafted")))


PIPELINES |= {"held": held_model, "blocking": blocking_model, "outsourced": outsourced_model}
app = App(
    "faults",
    pipelines=[*chaos.app.pipelines.values(), held, blocking, outsourced],
    resources={"farm": Farm()},
)
