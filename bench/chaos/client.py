"""The users of a chaos run: they start runs, send some twice, cancel some, and log the responses."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from bench.chaos.application import Inputs, app
from bench.chaos.receiver import Receiver
from retoma import Webhook
from retoma.client import Client
from retoma.errors import DatabaseUnavailable

TENANTS = ["north", "south", "east"]
BANK = "bank"  # the tenant of the wagers, which has a budget
STARTED_BY_SCHEDULES = "bell"
PIPELINES = [
    *(name for name in app.pipelines if name != STARTED_BY_SCHEDULES),
    *("rendering", "rendering", "voyage", "voyage", "printing"),
]
LONGEST_WAIT = timedelta(seconds=5)
MOST_RENDERINGS = 40  # open at a time: their pool is small, and its waiting jobs must end after the faults


@dataclass
class Acknowledged:
    run: UUID
    pipeline: str
    nonce: str
    size: int
    tenant: str = "default"
    key: str | None = None
    cancelled_at: float | None = None  # monotonic time of the response
    wants_webhook: bool = False


@dataclass
class UserLog:
    """The responses that users received; the database must agree with them."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)  # by nonce
    start_requests: int = 0
    sent_twice: int = 0
    unanswered: int = 0
    delayed: int = 0
    contradictions: list[str] = field(default_factory=list)


class Users:
    """`users` users, each with one run at a time."""

    def __init__(self, client: Client, receiver: Receiver, seed: int, users: int) -> None:
        self.log = UserLog()
        self._client = client
        self._receiver = receiver
        self._seed = seed
        self._users = users
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*(self._use(user) for user in range(self._users)))

    def stop(self) -> None:
        self._stopped.set()

    async def _use(self, user: int) -> None:
        dice = random.Random(self._seed * 1_000 + user)
        number = 0
        while not self._stopped.is_set():
            number += 1
            nonce = f"{user}-{number}"
            if (started := await self._start(dice, nonce)) is None:
                continue
            if dice.random() < 0.12:
                await self._pause(dice.uniform(0, 0.5))
                await self._cancel(started)
            else:
                await self._await(started.run)

    async def _start(self, dice: random.Random, nonce: str) -> Acknowledged | None:
        self.log.start_requests += 1
        pipeline = dice.choice(PIPELINES)
        if pipeline == "rendering" and await self._renderings() >= MOST_RENDERINGS:
            pipeline = "printing"
        given = Inputs(nonce=nonce, size=dice.choice([0, 1, 2, 3, 3, 5, 8]))
        key = f"key-{nonce}" if dice.random() < 0.7 else None
        run_at = datetime.now(UTC) + timedelta(seconds=dice.uniform(0.2, 2)) if dice.random() < 0.1 else None
        self.log.delayed += run_at is not None
        twice = key is not None and dice.random() < 0.3
        self.log.sent_twice += twice
        tenant = BANK if pipeline == "wager" else dice.choice(TENANTS)
        # The deliveries of a removed run could not be compared with what the receiver got.
        hook = self._webhook(dice) if dice.random() < 0.5 and pipeline != "receipt" else None
        while True:
            sending = [
                self._client.start(pipeline, given, tenant=tenant, key=key, run_at=run_at, webhook=hook)
                for _ in range(1 + twice)
            ]
            answers = await asyncio.gather(*sending, return_exceptions=True)
            known = {answer.id for answer in answers if not isinstance(answer, BaseException)}
            for error in answers:
                if isinstance(error, BaseException) and not isinstance(error, DatabaseUnavailable):
                    raise error
            if len(known) > 1:
                self.log.contradictions.append(f"the key of {nonce} gave {known}")
            if known:
                self.log.acknowledged[nonce] = Acknowledged(
                    known.pop(), pipeline, nonce, given.size, tenant, key, wants_webhook=hook is not None
                )
                return self.log.acknowledged[nonce]
            self.log.unanswered += 1
            if key is None:
                return None
            twice = False

    async def _renderings(self) -> int:
        with suppress(DatabaseUnavailable):
            open_runs = (await self._client.metrics.get_all()).open_runs
            return sum(runs for (pipeline, _), runs in open_runs.items() if pipeline == "rendering")
        return 0

    def _webhook(self, dice: random.Random) -> Webhook:
        events = dice.choice([("run.started", "run.ended"), ("run.ended",), ("run.completed",)])
        return Webhook(self._receiver.url(dice), events=events, schedule="short", retries=dice.choice([0, 3, 3, 3]))

    async def _cancel(self, started: Acknowledged) -> None:
        while True:
            with suppress(DatabaseUnavailable):
                if await self._client.runs.cancel(started.run) in ("cancelling", "cancelled"):
                    started.cancelled_at = time.monotonic()
                return

    async def _await(self, run: UUID) -> None:
        """Wait for the end of a run, for a limited time."""
        give_up = time.monotonic() + LONGEST_WAIT.total_seconds()
        while time.monotonic() < give_up and not self._stopped.is_set():
            with suppress(DatabaseUnavailable, TimeoutError):
                await self._client.wait(run, LONGEST_WAIT)
                return

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
