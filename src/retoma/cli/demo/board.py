"""The output of `retoma dev`: lines and, below them on a terminal, the progress of the demo's run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.text import Text

from retoma.cli import printing
from retoma.cli.messages import format_decimal
from retoma.cli.progress import Bar
from retoma.records import StepProgress


@contextmanager
def open_board() -> Iterator[Board]:
    board = Board(printing.stdout())
    try:
        yield board
    finally:
        board.clear()


class Board:
    """Print lines. `print_timed` adds the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_at = time.monotonic()
        self._bar: Bar | None = None

    def print_line(self, line: str, style: str = "") -> None:
        self.print_renderable(Text(line, style=style))

    def print_timed(self, line: str, style: str = "") -> None:
        self.print_renderable(
            Text.assemble((f"{format_decimal(time.monotonic() - self._started_at):>5} s  ", "dim"), (line, style))
        )

    def print_renderable(self, renderable: RenderableType) -> None:
        self._console.print(renderable)
        self._console.file.flush()

    def show(self, label: str, steps: Sequence[StepProgress], note: str = "") -> None:
        if self._bar is None:
            self._bar = Bar(label, self._console)
            self._bar.start()
        self._bar.show_steps(steps, note)

    def clear(self) -> None:
        """Leave the progress as it is; later lines follow below it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
