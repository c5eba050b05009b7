"""A step that reads a file in a child process, at the top of a module where one can import it."""

from __future__ import annotations

from pydantic import BaseModel

from retoma import Context, File, Pipeline, Retry


class Sent(BaseModel):
    files: list[File]
    other: File | None = None


reading = Pipeline("reading", inputs=Sent, retry=Retry(0))


@reading.step
def documents(files: list[File]) -> list[File]:
    return files


@reading.each(documents, key="name", isolation="process")
def length(document: File, *, ctx: Context) -> int:
    return len(ctx.path(document).read_bytes())


@reading.each(documents)
async def text(document: File, length: int, *, ctx: Context) -> str:
    return f"{length} {ctx.path(document).read_text()}"


strange = Pipeline("strange", inputs=Sent, retry=Retry(0))


@strange.step
def peek(other: File, *, ctx: Context) -> str:
    return ctx.path(other).read_text()
