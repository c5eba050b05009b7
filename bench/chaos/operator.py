"""Rerun and edit steps of completed runs, and repeat actions with their keys: a repeat gets the first response."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bench.chaos.client import UserLog
from retoma.client import Client
from retoma.errors import DatabaseUnavailable, RetomaError

SECONDS_BETWEEN_ACTIONS = 0.1
STEPS = {"chain": ["first", "second", "third", "fourth"], "diamond": ["top", "left", "right", "bottom"]}
CHANGES = ("rerun", "edit")
KINDS = (*CHANGES, "cancel", "rerun_failed")
REMEMBERED = 200  # of the newest actions, any of which may be repeated


@dataclass
class Action:
    """`cancel` and `rerun_failed` find nothing to do in a completed run; `edit` replaces a result by an equal one."""

    run: UUID
    key: str
    kind: str
    step: str
    value: Any = None
    answer: Any = None


class Operator:
    """`contradictions` are repeats whose response differed from the first.

    With `only_repeats` it starts nothing new, so all runs can end.
    """

    def __init__(self, client: Client, user_log: UserLog, seed: int) -> None:
        self.contradictions: list[str] = []
        self.acts: list[Action] = []
        self.repeated = 0
        self.only_repeats = False
        self._client = client
        self._told = user_log
        self._dice = random.Random(seed)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self.acts and (self.only_repeats or self._dice.random() < 0.6):
                    await self._repeat(self._dice.choice(self.acts[-REMEMBERED:]))
                elif not self.only_repeats:
                    await self._take_action()
            except DatabaseUnavailable:
                pass  # a repeat shows whether it was done
            await asyncio.sleep(SECONDS_BETWEEN_ACTIONS)

    async def _take_action(self) -> None:
        chosen = [
            one
            for one in list(self._told.acknowledged.values())[-REMEMBERED:]
            if one.pipeline in STEPS and one.cancelled_at is None and not one.wants_webhook
        ]
        if not chosen:
            return
        one = self._dice.choice(chosen)
        before = [act for act in self.acts if act.run == one.run]
        if any(act.answer is None for act in before) or (await self._client.runs.get(one.run)).state != "completed":
            return
        kind = self._dice.choice(CHANGES if before else KINDS)
        step = self._dice.choice(STEPS[one.pipeline])
        value = (await self._client.runs.get_results(one.run))[step] if kind == "edit" else None
        act = Action(one.run, f"act-{len(self.acts)}", kind, step, value)
        self.acts.append(act)
        act.answer = await self._do(act)

    async def _repeat(self, action: Action) -> None:
        answers = await asyncio.gather(self._do(action), self._do(action), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, DatabaseUnavailable):
                continue
            if isinstance(answer, BaseException) and not isinstance(answer, RetomaError):
                raise answer
            if action.answer is None and isinstance(answer, RetomaError):
                self.acts.remove(action)  # it was never done and no longer can be
                return
            action.answer = action.answer or answer  # the first response
            self.repeated += 1
            if answer != action.answer:
                self.contradictions.append(f"{action.key} of {action.run}: {action.answer!r}, and later {answer!r}")

    async def _do(self, action: Action) -> Any:
        options = {"by": "operator", "key": action.key}
        match action.kind:
            case "cancel":
                return await self._client.runs.cancel(action.run, **options)
            case "rerun_failed":
                return await self._client.runs.rerun_failed(action.run, **options)
            case "edit":
                return await self._client.runs.edit(action.run, action.step, action.value, **options)
            case _:
                return await self._client.runs.rerun(action.run, action.step, **options)
