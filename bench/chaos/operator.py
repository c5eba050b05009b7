"""Reruns and edits steps of completed runs, and repeats acts under their keys: a repetition gets the first answer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bench.chaos.client import Told
from retoma.client import Client
from retoma.errors import DatabaseUnavailable, RetomaError

BETWEEN_ACTS = 0.1
STEPS = {"chain": ["first", "second", "third", "fourth"], "diamond": ["top", "left", "right", "bottom"]}
CHANGES = ("rerun", "edit")
KINDS = (*CHANGES, "cancel", "rerun_failed")
REMEMBERED = 200  # of the newest acts, of which any may be repeated


@dataclass
class Act:
    """`cancel` and `rerun_failed` find nothing to do in a completed run; `edit` replaces a result by an equal one."""

    run: UUID
    key: str
    kind: str
    step: str
    value: Any = None
    answer: Any = None


class Operator:
    """`contradictions` are repetitions that were answered otherwise than the first time.

    Once it `only_repeats`, nothing new begins, so that all runs can end.
    """

    def __init__(self, client: Client, told: Told, seed: int) -> None:
        self.contradictions: list[str] = []
        self.acts: list[Act] = []
        self.repeated = 0
        self.only_repeats = False
        self._client = client
        self._told = told
        self._dice = random.Random(seed)

    async def walk(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self.acts and (self.only_repeats or self._dice.random() < 0.6):
                    await self._repeat(self._dice.choice(self.acts[-REMEMBERED:]))
                elif not self.only_repeats:
                    await self._act()
            except DatabaseUnavailable:
                pass  # whether it was done shows when it is repeated
            await asyncio.sleep(BETWEEN_ACTS)

    async def _act(self) -> None:
        chosen = [
            one
            for one in list(self._told.acknowledged.values())[-REMEMBERED:]
            if one.pipeline in STEPS and one.cancelled_at is None and not one.asked_for_webhook
        ]
        if not chosen:
            return
        one = self._dice.choice(chosen)
        before = [act for act in self.acts if act.run == one.run]
        if any(act.answer is None for act in before) or (await self._client.show(one.run)).state != "completed":
            return
        kind = self._dice.choice(CHANGES if before else KINDS)
        step = self._dice.choice(STEPS[one.pipeline])
        value = (await self._client.results(one.run))[step] if kind == "edit" else None
        act = Act(one.run, f"act-{len(self.acts)}", kind, step, value)
        self.acts.append(act)
        act.answer = await self._do(act)

    async def _repeat(self, act: Act) -> None:
        answers = await asyncio.gather(self._do(act), self._do(act), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, DatabaseUnavailable):
                continue
            if isinstance(answer, BaseException) and not isinstance(answer, RetomaError):
                raise answer
            if act.answer is None and isinstance(answer, RetomaError):
                self.acts.remove(act)  # it was never done, and cannot be any more
                return
            act.answer = act.answer or answer  # the first that anybody heard
            self.repeated += 1
            if answer != act.answer:
                self.contradictions.append(f"{act.key} of {act.run}: {act.answer!r}, and later {answer!r}")

    async def _do(self, act: Act) -> Any:
        options = {"by": "operator", "key": act.key}
        match act.kind:
            case "cancel":
                return await self._client.cancel(act.run, **options)
            case "rerun_failed":
                return await self._client.rerun_failed(act.run, **options)
            case "edit":
                return await self._client.edit(act.run, act.step, act.value, **options)
            case _:
                return await self._client.rerun(act.run, act.step, **options)
