"""Where attempts write down what they have done: parts that are done once, and work that goes on outside."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from math import inf
from operator import eq, is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from retoma.define.charge import Charge
from retoma.define.codec import LARGEST_RESULT, encode_any, size_of
from retoma.define.context import Limits, called
from retoma.define.durations import Duration, as_timedelta
from retoma.define.file import File
from retoma.define.mistakes import LONGEST_NAME
from retoma.define.outside import Cancel, Handover, Parked, Poll, Stopped, place_of
from retoma.engine.exchange import Claim
from retoma.errors import (
    DefinitionError,
    GiveUp,
    LeaseLost,
    OutcomeUnknown,
    OutsideFailed,
    RetryLater,
    describe_error,
)
from retoma.records import Fact
from retoma.store import clock, facts, outside, profiles, watchdog
from retoma.store.database import Database
from retoma.worker.ledger import Ledger
from retoma.worker.plan import Plan

if TYPE_CHECKING:
    from retoma.files import Files

Answer = TypeVar("Answer")
CALLBACK = "/api/v1/callbacks/"
TOKEN_BYTES = 32
TOKENS_LIVE = timedelta(days=30)
TURNS = 3  # of the loop until a step hears what one of several calls at once has given
LAST_WORDS = 30.0  # seconds for a call that was under way when its attempt was told to end


class Desks:
    """Gives each attempt of a worker its desk."""

    def __init__(self, database: Database, public_url: str | None, app: str = "", files: Files | None = None) -> None:
        self.worker = 0  # known when the worker has registered
        self.database = database
        self.public_url = public_url
        self.app = app
        self.files = files
        self.ledger = Ledger(database)

    def desk(self, claim: Claim, plan: Plan) -> AttemptDesk:
        return AttemptDesk(self, claim, plan)


class AttemptDesk:
    def __init__(self, desks: Desks, claim: Claim, plan: Plan) -> None:
        self._desks = desks
        self._claim = claim
        self._plan = plan
        self._given: dict[str, Any] = {}  # by each part that was done
        self._attempt = asyncio.current_task()
        self._told = False  # to end, while a part was being done
        self._found = False  # something that may go on outside
        self._calls = 0  # of ours that are under way
        self._token = secrets.token_urlsafe(TOKEN_BYTES) if desks.public_url else None

    @property
    def callback_url(self) -> str | None:
        if self._token is None:
            return None
        return f"{(self._desks.public_url or '').rstrip('/')}{CALLBACK}{self._token}"

    def charge(self, charge: Charge) -> None:
        self._desks.ledger.add(self._claim, charge)

    async def now(self) -> datetime:
        return await self._answered(clock.now(self._desks.database))

    async def limit_run(self, limit: Duration) -> None:
        names = ("run", "step", "item", "revision", "fence")
        job = {name: getattr(self._claim, name) for name in names}
        await self._answered(watchdog.limit(self._desks.database, job, _duration("limit", limit)))

    async def save_file(self, content: bytes | Path, name: str) -> File:
        if self._desks.files is None:
            raise DefinitionError("this application has nowhere to keep files: give App(files=...)")
        return await self._answered(self._desks.files.save(content, name=name))

    async def remember(self, known: Sequence[Fact], language: str, about: str) -> None:
        claim = self._claim
        await self._answered(
            facts.remember(self._desks.database, self._desks.app, claim.tenant, language, claim.run, known, about)
        )

    async def recall(self, query: str, language: str, limit: int) -> list[Fact]:
        return await self._answered(
            facts.recall(self._desks.database, self._desks.app, self._claim.tenant, language, query, limit)
        )

    async def profile(self, tenant: str) -> Any:
        found = await self._answered(profiles.listed(self._desks.database, self._desks.app, tenant))
        return found[0].value if found else None

    async def once(self, name: str, call: Callable[[], Any], reconcile: Callable[[], Any] | None) -> Any:
        known = await self._answered(self._once(self._part(name), call, reconcile))
        self._found |= reconcile is not None
        self._given[name] = json.loads(known or "null")
        return self._given[name]

    async def external(self, handle: Any, poll: Poll | None, cancel: Cancel | None, limits: Limits) -> Any:
        claim = self._claim
        found = await self._answered(
            outside.ended(self._desks.database, claim.run, claim.step, claim.item, claim.revision)
        )
        if found is None:
            raise Parked(self._handover(handle, poll, cancel, limits))
        if found.handle != self._plain(handle):
            raise DefinitionError(
                f"{claim.step!r} waits for another handle than it was parked with: submit within ctx.once, so that the "
                "handle stays the same, and leave a second piece of outside work to a step of its own"
            )
        if found.state == "succeeded":
            return found.result
        raise OutsideFailed(
            found.error.get("message") or f"it ended as {found.state}", found.error.get("code") or found.state.upper()
        )

    @property
    def _only_finds(self) -> bool:
        """Whether it begins nothing any more, and goes on only to where what it has begun is parked."""
        return self._claim.last or self._told

    async def _answered(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """One call of the context: what comes of it must be known before a last attempt has passed."""
        self._claim.looking += 1
        self._calls += 1
        try:
            answer = await call
        finally:
            self._calls -= 1
        self._claim.looking -= 1
        if self._only_finds:
            self._end_unless_it_asks_on(TURNS)
        return answer

    def _end_unless_it_asks_on(self, turns: int) -> None:
        """Of what a step does by itself, only what comes at once between two of our calls is done any more."""
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._end_unless_it_asks_on, turns - 1)
        elif self._calls == 0 and self._attempt is not None:
            self._attempt.cancel()

    async def _once(
        self, part: outside.Part, call: Callable[[], Any], reconcile: Callable[[], Any] | None
    ) -> str | None:
        """What this part gave, as JSON."""
        token_hash = hashlib.sha256(self._token.encode()).digest() if self._token else None
        state, known = await outside.begin(
            self._desks.database, self._desks.worker, part, token_hash, TOKENS_LIVE, findable=reconcile is not None
        )
        if state == "lost":
            raise self._lost()
        if state == "done":
            return known
        if self._only_finds and reconcile is None and (self._found or self._calls > 1):
            # It can be done without until what was found is parked.
            await outside.undo(self._desks.database, part)
            return None
        try:
            return await self._seen_through(self._done(part, call, reconcile if state == "begun" else None))
        except Stopped:
            if self._claim.last or self._attempt is None:
                raise
            self._attempt.cancel()  # as it was told: what it has not begun is for another attempt
            raise asyncio.CancelledError from None

    async def _done(self, part: outside.Part, call: Callable[[], Any], reconcile: Callable[[], Any] | None) -> str:
        """Do it, unless it turns out to be done, and write down what came of it."""
        value = await called(reconcile) if reconcile is not None else None
        if value is None:
            value = await self._call(part, call)
        recorded = _encoded(value, f"what once({part.name!r}) of {self._claim.step!r} gives")
        if not await outside.end(self._desks.database, part, recorded):
            raise self._lost()
        return recorded

    async def _call(self, part: outside.Part, call: Callable[[], Any]) -> Any:
        try:
            if self._only_finds:
                raise Stopped
            return await called(call)
        except OutcomeUnknown:
            raise
        except (RetryLater, GiveUp, Stopped):
            # Nothing happened, or the step says so; after any other error nobody knows.
            await outside.undo(self._desks.database, part)
            raise

    async def _seen_through(self, work: Coroutine[Any, Any, str]) -> str:
        """Let what has begun come to its record though the attempt is told to end: nobody could cancel outside what
        nobody knows of. The attempt goes on then, to where it parks. After a while it is given up all the same."""
        task, attempt = asyncio.ensure_future(_contained(work)), asyncio.current_task()
        told, give_up = 0, inf
        while not task.done() and time.monotonic() < give_up:
            try:
                await asyncio.wait([task], timeout=None if give_up == inf else give_up - time.monotonic())
            except asyncio.CancelledError:
                told, give_up = told + 1, min(give_up, time.monotonic() + LAST_WORDS)
        if not task.done():
            task.cancel()
            raise asyncio.CancelledError
        for _ in range(told):
            assert attempt is not None
            attempt.uncancel()
        self._told |= told > 0
        return task.result()

    def _part(self, name: str) -> outside.Part:
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            raise DefinitionError(f"once({name!r:.80}): give a name of 1 to {LONGEST_NAME} characters")
        claim = self._claim
        return outside.Part(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)

    def _handover(self, handle: Any, poll: Poll | None, cancel: Cancel | None, limits: Limits) -> Handover:
        if poll is None and self._token is None:
            raise DefinitionError(
                f"{self._claim.step!r} waits for a callback, and nobody knows where it could be called: "
                "give external(poll=...), or set RETOMA_PUBLIC_URL"
            )
        resources = self._plan.resources
        return Handover(
            handle=self._plain(handle),
            poll=place_of(poll, "poll", resources),
            cancel=place_of(cancel, "cancel", resources),
            every=_duration("every", limits.every),
            queued=None if limits.queued is None else _duration("queued", limits.queued),
            running=None if limits.running is None else _duration("running", limits.running),
            total=_duration("total", limits.total or self._plan.step.policy.timeout),
            effect=self._giver_of(handle),
        )

    def _giver_of(self, handle: Any) -> str | None:
        """The part that has given this handle, alone or within what it gave: this very object, or the first like it."""
        plain = self._plain(handle)
        like = [name for name, given in self._given.items() if _holds(given, plain, eq)]
        if not like:  # it was made of what the only one gave
            like = [name for name, given in self._given.items() if given is not None]
            like = like if len(like) == 1 else []
        return next((name for name in like if _holds(self._given[name], handle, is_)), like[0] if like else None)

    def _plain(self, handle: Any) -> Any:
        """As it comes back from the database."""
        return json.loads(_encoded(handle, f"the handle of {self._claim.step!r}"))

    def _lost(self) -> LeaseLost:
        claim = self._claim
        of = f" of {claim.item!r}" if claim.item else ""
        return LeaseLost(
            f"{claim.step!r}{of} in run {claim.run} is no longer this attempt's: what it does is discarded"
        )


def _holds(given: Any, handle: Any, same: Callable[[Any, Any], bool]) -> bool:
    if same(given, handle):
        return True
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    return any(_holds(part, handle, same) for part in parts)


async def _contained(work: Coroutine[Any, Any, str]) -> str:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # which would end the worker, were they a task's own
        raise RuntimeError(f"a call within once raised {describe_error(error)}") from error


def _duration(name: str, given: object) -> timedelta:
    if not isinstance(given, timedelta | int | float) or as_timedelta(given) <= timedelta(0):
        raise DefinitionError(f"external({name}={given!r}): give a duration above zero, such as minutes(5)")
    return as_timedelta(given)


def _encoded(value: Any, what: str) -> str:
    try:
        text = encode_any(value)
    except TypeError as error:
        raise DefinitionError(f"{what} cannot be JSON: {error}") from error
    if size_of(text) > LARGEST_RESULT:
        raise DefinitionError(f"{what} is over {LARGEST_RESULT:,} bytes of JSON: keep large data in a file")
    return text
