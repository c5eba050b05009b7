"""The pipelines of a chaos run: every graph shape, with steps that record their executions in the log."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bench.chaos import chance, execution_log, fake_provider
from bench.chaos.chance import child_nonce, mix
from bench.chaos.fake_provider import FakeProvider
from retoma import App, Context, File, GiveUp, Items, Pipeline, Pool, Retry, fixed_delay, minutes, seconds
from retoma import files as file_store
from retoma.errors import RateLimited
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.schedules import Schedule
from retoma.webhooks import sender
from retoma.worker import external_work_poller

PATIENT = Retry(40, backoff=fixed_delay(0.05))
if lease := os.environ.get("CHAOS_LEASE"):
    # Nothing here takes half a minute to respond, so polls and deliveries of a dead process are retried soon.
    external_work_poller.LEASE = sender.LEASE = timedelta(seconds=float(lease))
    sender.TIMEOUT = float(lease) / 2
file_store.FRESH_FOR = timedelta(days=-1)  # the grace time is short, and some clocks are wrong: store all content again


class Inputs(BaseModel):
    nonce: str
    size: int = 0


@dataclass
class StepOutput:
    """A result that names the execution of its step."""

    value: int
    attempt: int
    token: str


@dataclass
class Scanned(StepOutput):
    """A result with a file."""

    file: File


@dataclass
class Part:
    name: str
    attempt: int
    token: str


def value_of(result: Any) -> object:
    """Return the part of a result that the next step uses, without the attempt."""
    if isinstance(result, Items):
        return sorted((key, made.value) for key, made in result.by_key.items()), sorted(f.key for f in result.failures)
    if isinstance(result, Part):
        return result.name
    return result.value if isinstance(result, StepOutput) else result


def record_success(ctx: Context, token: str, *inputs: Any, pid: int = 0) -> StepOutput:
    execution_log.write(ctx, pid or os.getpid(), token, "ended")
    return StepOutput(mix(ctx.step, ctx.item, *map(value_of, inputs)), ctx.attempt, token)


def record_parts(ctx: Context, token: str, size: int) -> list[Part]:
    execution_log.write(ctx, os.getpid(), token, "ended")
    return [Part(f"{ctx.step}-{number}", ctx.attempt, token) for number in range(size)]


def record_failure(ctx: Context, error: Exception) -> Exception:
    execution_log.write(ctx, os.getpid(), execution_log.record_start(ctx, os.getpid()), "failed")
    return error


async def work(ctx: Context, *inputs: Any) -> StepOutput:
    token = execution_log.record_start(ctx, os.getpid())
    await asyncio.sleep(chance.pace(ctx.run, ctx.step, ctx.item))
    return record_success(ctx, token, *inputs)


def work_in_thread(ctx: Context, *inputs: Any) -> StepOutput:
    token = execution_log.record_start(ctx, os.getpid())
    time.sleep(chance.pace(ctx.run, ctx.step, ctx.item))
    return record_success(ctx, token, *inputs)


chain = Pipeline("chain", inputs=Inputs, retry=PATIENT)


@chain.step
async def first(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce)


@chain.step
def second(first: StepOutput, *, ctx: Context) -> StepOutput:
    return work_in_thread(ctx, first)


@chain.step
async def third(second: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, second)


@chain.step
async def fourth(third: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, third)


album = Pipeline("album", inputs=Inputs, retry=PATIENT)


@album.step
async def tracks(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@album.each(tracks, key="name")
async def recorded(track: Part, *, ctx: Context) -> StepOutput:
    if chance.fails(ctx.run, ctx.step, ctx.item):
        raise record_failure(ctx, GiveUp("this item is bad", code="BAD"))
    return await work(ctx, track)


@album.each(tracks)
def mixed(recorded: StepOutput, *, ctx: Context) -> StepOutput:
    return work_in_thread(ctx, recorded)


@album.step
async def record(mixed: Items[StepOutput], *, ctx: Context) -> StepOutput:
    return await work(ctx, mixed)


diamond = Pipeline("diamond", inputs=Inputs, retry=PATIENT)


@diamond.step
async def top(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce)


@diamond.step
def left(top: StepOutput, *, ctx: Context) -> StepOutput:
    return work_in_thread(ctx, top)


@diamond.step
async def right(top: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, top)


@diamond.step
async def bottom(left: StepOutput, right: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, left, right)


film = Pipeline("film", inputs=Inputs, retry=PATIENT)


@film.step
async def scenes(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@film.step
async def languages(nonce: str, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), 2)


@film.each(scenes, languages, key=["name", "name"])
async def dubbed(scene: Part, language: Part, *, ctx: Context) -> StepOutput:
    return await work(ctx, scene, language)


@film.step
async def reel(dubbed: Items[StepOutput], *, ctx: Context) -> StepOutput:
    return await work(ctx, dubbed)


gallery = Pipeline("gallery", inputs=Inputs, retry=PATIENT)


@gallery.step
async def motifs(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@gallery.step
async def style(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce)


@gallery.each(motifs, key="name")
async def painted(motif: Part, style: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, motif, style)


@gallery.step
async def exhibition(painted: Items[StepOutput], *, ctx: Context) -> StepOutput:
    return await work(ctx, painted)


weather = Pipeline("weather", inputs=Inputs, retry=PATIENT)


@weather.step(timeout=seconds(0.6))
async def stations(size: int, *, ctx: Context) -> list[Part]:
    token = execution_log.record_start(ctx, os.getpid())
    if chance.trips(ctx.run, ctx.step, ctx.item, ctx.attempt):
        execution_log.write(ctx, os.getpid(), token, "failed")
        await asyncio.sleep(600)  # its timeout ends it
    return record_parts(ctx, token, size)


@weather.each(stations, key="name")
async def measured(station: Part, *, ctx: Context) -> StepOutput:
    if chance.stumbles(ctx.run, ctx.step, ctx.item, ctx.attempt):
        raise record_failure(ctx, OSError("the station does not answer"))
    token = execution_log.record_start(ctx, os.getpid())
    if chance.trips(ctx.run, ctx.step, ctx.item, ctx.attempt):
        time.sleep(0.4)  # noqa: ASYNC251  (a mistake that people make: it blocks the worker's loop)
    return record_success(ctx, token, station)


@weather.step
async def forecast(measured: Items[StepOutput], *, ctx: Context) -> StepOutput:
    if chance.stumbles(ctx.run, ctx.step, ctx.item, ctx.attempt):
        raise record_failure(ctx, OSError("not now"))
    token = execution_log.record_start(ctx, os.getpid())
    return record_success(ctx, token, measured)


menu = Pipeline("menu", inputs=Inputs, retry=PATIENT)


@menu.step
async def guests(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@menu.step(when=lambda nonce: chance.is_wanted(nonce, "dessert"))
async def dessert(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce)


@menu.each(guests, key="name", when=lambda guest, nonce: chance.is_wanted(nonce, guest.name))
async def dish(guest: Part, nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, guest, nonce)


@menu.each(guests)
async def drink(dish: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, dish)


@menu.step
async def table(drink: Items[StepOutput], dessert: StepOutput | None = None, *, ctx: Context) -> StepOutput:
    return await work(ctx, drink, dessert)


@menu.step
async def coffee(dessert: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, dessert)


trial = Pipeline("trial", inputs=Inputs, retry=PATIENT)


@trial.step
async def evidence(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@trial.each(evidence, key="name")
async def weighed(piece: Part, *, ctx: Context) -> StepOutput:
    return await work(ctx, piece)


@trial.step
async def hearing(nonce: str, *, ctx: Context) -> StepOutput:
    if chance.stops(ctx.run):
        await asyncio.sleep(chance.pace(ctx.run, ctx.step, ""))
        raise record_failure(ctx, GiveUp("the case is dismissed", code="DISMISSED"))
    return await work(ctx, nonce)


@trial.step
async def verdict(weighed: Items[StepOutput], hearing: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, weighed, hearing)


parcel = Pipeline("parcel", inputs=Inputs, retry=PATIENT)


@parcel.step(on_failure="continue")
async def label(nonce: str, *, ctx: Context) -> StepOutput:
    if chance.stops(ctx.run):
        raise record_failure(ctx, GiveUp("the printer has no paper", code="NO_PAPER"))
    return await work(ctx, nonce)


@parcel.step
async def box(nonce: str, label: StepOutput | None = None, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce, label)


@parcel.step
async def stamp(label: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, label)


@parcel.step(after=stamp)
async def bill(box: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, box)


laboratory = Pipeline("laboratory", inputs=Inputs, retry=PATIENT)


@laboratory.step
async def samples(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), min(size, 3))


@laboratory.each(samples, key="name", isolation="process", timeout=seconds(20))
def assay(sample: Part, *, ctx: Context) -> StepOutput:
    worker = os.getppid()
    token = execution_log.record_start(ctx, worker)
    if chance.trips(ctx.run, ctx.step, ctx.item, ctx.attempt):
        execution_log.write(ctx, worker, token, "failed")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(chance.pace(ctx.run, ctx.step, ctx.item))
    return record_success(ctx, token, sample, pid=worker)


@laboratory.step
async def report(assay: Items[StepOutput], *, ctx: Context) -> StepOutput:
    return await work(ctx, assay)


rendering = Pipeline("rendering", inputs=Inputs, retry=PATIENT)
machines = Pool(fake_provider.POOL, capacity=fake_provider.CAPACITY)


@rendering.step
async def shots(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), min(size, 3))


async def rendered(provider: FakeProvider, ctx: Context) -> Any:
    return await ctx.external(
        lambda: provider.submit(ctx),
        find=provider.find,
        poll=provider.status,
        cancel=provider.cancel,
        poll_interval=seconds(0.3),
        queue_timeout=seconds(1.5),
        total_timeout=minutes(2),
    )


@rendering.each(shots, key="name", pool=machines, slots=fake_provider.SLOTS["clip"])
async def clip(shot: Part, *, provider: FakeProvider, ctx: Context) -> StepOutput:
    return await work(ctx, shot, await rendered(provider, ctx))


@rendering.step(pool=machines, slots=fake_provider.SLOTS["poster"])
async def poster(nonce: str, *, provider: FakeProvider, ctx: Context) -> StepOutput:
    return await work(ctx, nonce, await rendered(provider, ctx))


@rendering.step
async def feature(clip: Items[StepOutput], poster: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, clip, poster)


correspondence = Pipeline("correspondence", inputs=Inputs, retry=PATIENT)


@correspondence.step
async def letter(nonce: str, *, provider: FakeProvider, ctx: Context) -> StepOutput:
    """External work that ends by its callback only; it is not polled."""
    answer = await ctx.external(
        lambda: provider.submit(ctx), find=provider.find, cancel=provider.cancel, total_timeout=minutes(10)
    )
    return await work(ctx, nonce, answer)


@correspondence.step
async def archive(letter: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, letter)


voyage = Pipeline("voyage", inputs=Inputs, retry=PATIENT)


@voyage.step
async def ports(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), min(size, 3))


@voyage.each(ports, key="name")
async def ship(port: Part, *, provider: FakeProvider, ctx: Context) -> StepOutput:
    """Start something that nobody polls: it continues until it is cancelled."""
    await ctx.once("hire", lambda: provider.submit(ctx), find=provider.find, cancel=provider.cancel)
    if chance.fails(ctx.run, ctx.step, ctx.item):
        raise record_failure(ctx, GiveUp("the ship leaks", code="LEAK"))
    return await work(ctx, port)


@voyage.step
async def captain(nonce: str, *, ctx: Context) -> StepOutput:
    if chance.stops(ctx.run):
        await asyncio.sleep(chance.pace(ctx.run, ctx.step, ""))
        raise record_failure(ctx, GiveUp("the captain stays ashore", code="ASHORE"))
    return await work(ctx, nonce)


@voyage.step
async def arrival(ship: Items[StepOutput], captain: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, ship, captain)


column = Pipeline("column", inputs=Inputs, retry=PATIENT)


@column.step
async def draft(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce, ctx.revision)


column.review("approval", of=draft)


@column.step
async def printed(approval: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, approval)


printing = Pipeline("printing", inputs=Inputs, retry=PATIENT)
press = Pool("press", capacity=4, rate=60, burst=10)


@printing.step
async def pages(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@printing.step(pool=press, slots=3)
async def cover(nonce: str, *, ctx: Context) -> StepOutput:
    return await work(ctx, nonce)


@printing.each(pages, key="name", pool=press)
async def page(sheet: Part, *, ctx: Context) -> StepOutput:
    if chance.trips(ctx.run, ctx.step, ctx.item, ctx.attempt) and fake_provider.is_first(ctx.effect_key):
        raise RateLimited(0.2)
    if chance.fails(ctx.run, ctx.step, ctx.item):
        raise record_failure(ctx, GiveUp("the paper is torn", code="TORN"))
    return await work(ctx, sheet)


@printing.step
async def book(page: Items[StepOutput], cover: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, page, cover)


anthology = Pipeline("anthology", inputs=Inputs, retry=PATIENT)


@anthology.step
async def authors(size: int, *, ctx: Context) -> list[Part]:
    return record_parts(ctx, execution_log.record_start(ctx, os.getpid()), size)


@anthology.each(authors, key="name")
async def story(author: Part, nonce: str, *, ctx: Context) -> StepOutput:
    """Each author's story is a child run."""
    results = await ctx.run_child(diamond, Inputs(nonce=child_nonce(nonce, author.name)))
    return await work(ctx, author, results["bottom"]["value"])


@anthology.step
async def volume(story: Items[StepOutput], *, ctx: Context) -> StepOutput:
    return await work(ctx, story)


async def scan(ctx: Context, nonce: str) -> Scanned:
    """Work, with a file as result: half of the results have a file of their own, the others share a few."""
    number = mix(nonce)
    page = nonce if number % 2 else number % SHARED_PAGES
    file = await ctx.save_file(f"page {page}".encode(), "page.txt")
    return Scanned(**vars(await work(ctx, nonce)), file=file)


SHARED_PAGES = 100
KEPT_SECONDS = 10  # after the end of a receipt
receipt = Pipeline("receipt", inputs=Inputs, retry=PATIENT, retention=seconds(KEPT_SECONDS))


@receipt.step
async def entered(nonce: str, *, ctx: Context) -> Scanned:
    ctx.charge("office", "receipt", micros=1)
    return await scan(ctx, nonce)


@receipt.step
async def filed(entered: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, entered)


RECEIPT_STEPS = ("entered", "filed")
STAKE = 100  # in micros
wager = Pipeline("wager", inputs=Inputs, retry=PATIENT)


@wager.step(estimated_cost=STAKE / 1_000_000)
async def staked(nonce: str, *, ctx: Context) -> StepOutput:
    output = await work(ctx, nonce)
    ctx.charge("bank", "stake", micros=STAKE)
    return output


@wager.step
async def settled(staked: StepOutput, *, ctx: Context) -> StepOutput:
    return await work(ctx, staked)


bell = Pipeline("bell", inputs=Inputs, retry=PATIENT)


@bell.step
async def rung(nonce: str, *, ctx: Context) -> Scanned:
    return await scan(ctx, nonce)


def open_files() -> FileStore | None:
    """Open the file store of a chaos run; other tests that use these pipelines have none."""
    folder = os.environ.get("CHAOS_FILES")
    return create_file_store(FileSettings(home=Path(folder))) if folder else None


RUNG: dict[str, Any] = {"nonce": "{{ schedule }} {{ due_at }}", "size": 0}
HOURS = Schedule("hours", bell, every=seconds(2), catch_up="all", catch_up_limit=1_000, inputs=RUNG)
CHIME = Schedule("chime", bell, every=seconds(1), overlap="skip", inputs=RUNG)


app = App(
    "chaos",
    pipelines=[
        chain,
        album,
        diamond,
        film,
        gallery,
        weather,
        menu,
        trial,
        parcel,
        laboratory,
        rendering,
        correspondence,
        voyage,
        column,
        printing,
        anthology,
        receipt,
        wager,
        bell,
    ],
    schedules=[HOURS, CHIME],
    files=open_files(),
    resources={"provider": FakeProvider()},
)
