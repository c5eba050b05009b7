"""Steps that take a run's input, at the top of a module where a child process can import them."""

from __future__ import annotations

from pydantic import BaseModel

from retoma import Context, Items, Pipeline, Retry


class Book(BaseModel):
    text: str
    title: str = "untitled"


book = Pipeline("book", inputs=Book, retry=Retry(1, delays=[1]))


@book.step
def head(text: str, *, ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("at the first try")
    return len(text)


@book.step
def middle(head: int, text: str) -> int:
    return head + len(text)


@book.step(isolation="process")
def tail(middle: int, text: str, title: str) -> str:
    return f"{title} {middle + len(text)}"


@book.step
def chapters(text: str) -> list[str]:
    return [text[:3], text[3:5]]


@book.each(chapters)
def word(chapter: str, text: str) -> str:
    return f"{chapter} of {len(text)}"


@book.step
def index(word: Items[str], title: str) -> list[str]:
    return [title, *word]
