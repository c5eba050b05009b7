"""`python -m bench.inbox`: the inbox with 500 open reviews, with the server and the workers in their own processes.

Measures the time to first byte of its pages, one request after the other, and in Chromium the time from the key that
approves a review until the next one is drawn. Sends a narration back with two comments at moments, and counts the keys:
hand time is their number at a typing speed, plus the time that the page takes.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import shutil
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from uuid import UUID

import httpx2
import uvloop
from playwright.async_api import Page, async_playwright
from pydantic import BaseModel

from bench.classifier import WAIT_TIMEOUT, worker_processes
from bench.machine import describe
from bench.pages import open_visitor, times
from bench.server import open_server
from bench.testbed import Rig, Testbed
from retoma import App, Client, Context, Pipeline, Settings, connect, hours
from retoma.define.file import File
from retoma.files import FileSettings, create_file_store

REVIEWS, REQUESTS, DECISIONS = 500, 100, 40
RATE = 8_000  # samples per second
KEYS_PER_MINUTE = 200  # 40 words: an average typist
COMMENTS = ((12.0, "too loud here"), (41.5, "say this more slowly"))
NOTES = "keep the rest"
SCENE = "Renda fixa é um empréstimo: você empresta ao governo, a um banco ou a uma empresa, e recebe juros. "
# Until the browser has drawn the title of another review.
NEXT_REVIEW = """async key => {
    const title = () => document.getElementById("review-title")?.textContent;
    const before = title();
    const began = performance.now();
    document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    while (title() === before) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""


class Brief(BaseModel):
    topic: str


class Script(BaseModel):
    title: str
    scenes: list[str]


article = Pipeline("article", Brief, title="{topic}")


@article.step
def script(topic: str) -> Script:
    return Script(title=topic, scenes=[SCENE * 3] * 12)


article.review("script_review", of=script, due=hours(2))
talk = Pipeline("talk", Brief, title="{topic}")


@talk.step
async def narration(topic: str, *, ctx: Context) -> File:
    """Return a minute of silence."""
    made = io.BytesIO()
    with wave.open(made, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(RATE)
        sound.writeframes(b"\x80" * RATE * 60)
    return await ctx.save_file(made.getvalue(), f"{topic}.wav")


talk.review("audio_review", of=narration, due=hours(2))
settings = Settings()
app = App("inbox", pipelines=[article, talk], files=create_file_store(FileSettings(home=settings.home, files_url=None)))


async def open_reviews(testbed: Testbed, home: Path, count: int) -> None:
    async with (
        connect(app, Settings(database_url=testbed.url)) as client,
        worker_processes("bench.inbox:app", testbed.url, home, 1, 10),
    ):
        await client.start(talk, {"topic": "Tesouro Selic"})
        await client.start_many(article, [{"topic": f"Tesouro Selic ou fundo DI, parte {n}"} for n in range(count)])
        async with asyncio.timeout(WAIT_TIMEOUT.total_seconds()):
            while await count_open(client) <= count:  # noqa: ASYNC110  (other processes do the work)
                await asyncio.sleep(0.2)


async def count_open(client: Client) -> int:
    return sum(each.open for each in await client.reviews.count_open())


async def measure_keys(visitor: httpx2.AsyncClient, decisions: int) -> dict[str, list[float]]:
    """Return the milliseconds from the key to the next review, for approving and for moving on."""
    async with open_page(visitor) as page:
        await page.goto(f"{visitor.base_url}/reviews?pipeline=article")
        found: dict[str, list[float]] = {}
        for name, key in (("approve", "a"), ("next", "j")):
            found[f"key to next review ({name})"] = times_of_key = []
            for _ in range(decisions):
                await page.wait_for_timeout(1_000)  # somebody reads it
                times_of_key.append(await page.evaluate(NEXT_REVIEW, key))
        return found


@asynccontextmanager
async def open_page(visitor: httpx2.AsyncClient) -> AsyncIterator[Page]:
    """Yield a page of Chromium that is logged in as the visitor."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.context.add_cookies(
            [{"name": name, "value": value, "url": str(visitor.base_url)} for name, value in visitor.cookies.items()]
        )
        yield page
        await browser.close()


async def measure_send_back(visitor: httpx2.AsyncClient, review: UUID) -> tuple[int, float]:
    """Send a narration back with two comments at moments. Return the number of keys, and the seconds waited."""
    keys, waited = 0, 0.0
    async with open_page(visitor) as page:

        async def press(*pressed: str) -> None:
            nonlocal keys
            for key in pressed:
                keys += 1 + key.count("+")
                await page.keyboard.press(key)

        async def wait_for(script: str) -> None:
            nonlocal waited
            began = perf_counter()
            await page.wait_for_function(script)
            waited += perf_counter() - began

        await page.goto(f"{visitor.base_url}/reviews/{review}")
        await page.wait_for_function("document.querySelector('audio').readyState > 0")
        for number, (seconds, text) in enumerate(COMMENTS, start=1):
            await press("Space")  # listens
            await page.locator("audio").evaluate("(audio, at) => { audio.currentTime = at; }", seconds)
            await press("c", *text, "Control+Enter", "Escape")
            await wait_for(f"document.querySelectorAll('[data-list] li').length === {number}")
        await press("r", *NOTES, "Control+Enter")
        await wait_for("document.querySelector('#toasts .toast') !== null")
    return keys, waited


async def measure(rig: Rig, requests: int, decisions: int) -> tuple[dict[str, list[float]], tuple[int, float]]:
    with TemporaryDirectory(prefix="retoma-bench-") as home:
        async with rig.testbed() as testbed:
            await open_reviews(testbed, Path(home), rig.count(REVIEWS, least=60))
            async with (
                open_visitor(testbed, "bench.inbox:app", home) as visitor,
                connect(app, Settings(database_url=testbed.url)) as client,
            ):
                (review,) = await client.reviews.list(pipeline="article", limit=1)
                (recording,) = await client.reviews.list(pipeline="talk")
                pages = {
                    "inbox, first byte": "/reviews",
                    "inbox with a filter, first byte": "/reviews?q=parte+1&assignee=nobody",
                    "one review in the inbox, first byte": f"/reviews/{review.id}",
                    "panes of one review, first byte": f"/reviews/{review.id}/panes",
                }
                found = {name: await times(visitor, path, requests) for name, path in pages.items()}
                found |= await measure_keys(visitor, decisions)
                return found, await measure_send_back(visitor, recording.id)


async def _main(arguments: argparse.Namespace) -> None:
    async with open_server() as server:
        for name, value in (await describe(server)).items():
            print(f"{name}: {value}")
        found, (keys, waited) = await measure(
            Rig(server, arguments.scale, timeout=900), arguments.requests, arguments.decisions
        )
        await server.close()
    print("\n| what | p50, ms | p95, ms | worst, ms |\n| --- | --- | --- | --- |")
    for name, each in found.items():
        p95 = quantiles(each, n=20, method="inclusive")[18]
        print(f"| {name} | {median(each):.1f} | {p95:.1f} | {max(each):.1f} |")
    hands = keys * 60 / KEYS_PER_MINUTE
    print(f"\na send-back with two comments at moments: {keys} keys, {hands:.1f} s at {KEYS_PER_MINUTE} keys a minute,")
    print(f"and {waited:.2f} s of waiting: {hands + waited:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.inbox", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="for each page")
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="by each key")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all reviews, for a quick look")
    uvloop.run(_main(parser.parse_args()))
