"""The measured pipelines: no-op work, so only the engine's overhead is measured."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel

from retoma import App, Items, Pipeline


class Size(BaseModel):
    n: int = 1
    payload: str = ""


chain = Pipeline("chain", inputs=Size)


@chain.step
async def s0(n: int) -> int:
    return n


@chain.step
async def s1(s0: int) -> int:
    return s0


@chain.step
async def s2(s1: int) -> int:
    return s1


@chain.step
async def s3(s2: int) -> int:
    return s2


@chain.step
async def s4(s3: int) -> int:
    return s3


@chain.step
async def s5(s4: int) -> int:
    return s4


@chain.step
async def s6(s5: int) -> int:
    return s5


@chain.step
async def s7(s6: int) -> int:
    return s6


@chain.step
async def s8(s7: int) -> int:
    return s7


@chain.step
async def s9(s8: int) -> int:
    return s8


def _payload_chain() -> Pipeline:
    """Define the chain that passes a kilobyte of JSON from step to step."""
    pipeline = Pipeline("payload_chain", inputs=Size)

    async def p0(payload: str) -> dict[str, str]:
        return {"text": payload}

    pipeline.step(p0)
    for number in range(1, 10):
        names: dict[str, Any] = {}
        source = f"async def p{number}(p{number - 1}: dict[str, str]) -> dict[str, str]:\n    return p{number - 1}"
        exec(source, names)
        pipeline.step(names[f"p{number}"])
    return pipeline


payload_chain = _payload_chain()

fan = Pipeline("fan", inputs=Size)


@fan.step
async def documents(n: int) -> list[int]:
    return list(range(n))


@fan.each(documents)
async def label(document: int) -> int:
    return document


@fan.step
async def report(label: Items[int]) -> int:
    return len(label)


drain = Pipeline("drain", inputs=Size)


@drain.step
async def only(n: int) -> int:
    return n


drain_threads = Pipeline("drain_threads", inputs=Size)


@drain_threads.step
def only_in_thread(n: int) -> int:
    return n


class StampInput(BaseModel):
    sent_at: float  # by the monotonic clock, which all processes of a machine share


stamp = Pipeline("stamp", inputs=StampInput)


@stamp.step
async def seconds_under_way(sent_at: float) -> float:
    return time.monotonic() - sent_at


app = App("bench", pipelines=[chain, payload_chain, fan, drain, drain_threads, stamp])
