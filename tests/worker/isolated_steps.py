"""Steps that misbehave in every way, at the top of a module where a child process can import them."""

from __future__ import annotations

import ctypes
import os
import time
from datetime import timedelta

from pydantic import BaseModel

from retoma import Context, Isolation, Items, Pipeline, Retry, seconds


class Way(BaseModel):
    way: str = "well"


misbehaving = Pipeline("misbehaving", inputs=Way, retry=Retry(0))


@misbehaving.step(isolation=Isolation(memory=200 << 20, cpu=timedelta(seconds=1)), timeout=seconds(20))
def behaviour(way: str, *, ctx: Context) -> dict[str, str]:
    match way:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "memory":
            return {"size": str(len(b"x" * (1 << 30)))}
        case "processor":
            while True:
                pass
        case "raise":
            raise ValueError("no such way")
        case "print":
            print("this must not be taken for an answer", flush=True)
    return {"pid": str(os.getpid()), "secret": os.environ.get("OPENROUTER_API_KEY", "none"), "step": ctx.step}


hanging = Pipeline("hanging", retry=Retry(0))


@hanging.step(isolation="process", timeout=seconds(1.5))
def hung() -> None:
    time.sleep(600)  # in C, where no thread could be stopped


poisoned = Pipeline("poisoned", retry=Retry(10, delays=[0]))


@poisoned.step
def documents() -> list[str]:
    return ["good", "poison", "fine"]


@poisoned.each(documents, isolation="process")
def text(document: str) -> str:
    if document == "poison":
        os.kill(os.getpid(), 11)
    return document.upper()


@poisoned.step
def report(text: Items[str]) -> list[str]:
    return [*text, *(failed.code for failed in text.failed)]
