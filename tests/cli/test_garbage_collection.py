"""A worker frees garbage that reference counting cannot, though it collects rarely."""

from __future__ import annotations

from tests.cli.terminal import Terminal

HOARD = """
import asyncio
import weakref

from retoma import Pipeline, Retry, seconds

hoard = app = Pipeline("hoard", retry=Retry(0))


class Large:
    def __init__(self):
        self.itself = self
        self.content = b"x" * (160 << 20)


@hoard.step(timeout=seconds(30))
async def cycle() -> str:
    kept = weakref.ref(Large())
    while kept() is not None:
        await asyncio.sleep(0.02)
    return "collected"
"""


def test_a_worker_frees_large_reference_cycles_of_its_steps(terminal: Terminal) -> None:
    (terminal.folder / "hoard.py").write_text(HOARD)
    with terminal.process("worker", "hoard.py"):
        assert "collected" in terminal.out("start", "hoard", "hoard.py", "--wait")
