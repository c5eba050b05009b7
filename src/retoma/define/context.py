"""What a step may know about the attempt that runs it, and do through it: its `ctx` parameter, right of `*`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from retoma.define.charge import Charge
from retoma.define.durations import Duration
from retoma.define.external_work import Cancel, Poll
from retoma.define.file import File
from retoma.define.review import Feedback
from retoma.errors import DefinitionError
from retoma.records import Fact


class ContextBackend(Protocol):
    """Where an attempt writes down what it has done, so that no later one does it again. The worker brings it."""

    @property
    def callback_url(self) -> str | None: ...

    def charge(self, charge: Charge) -> None: ...

    async def now(self) -> datetime: ...

    async def limit_run(self, limit: Duration) -> None: ...

    async def save_file(self, content: bytes | Path, name: str) -> File: ...

    async def remember(self, facts: Sequence[Fact], language: str, about: str) -> None: ...

    async def recall(self, query: str, language: str, limit: int) -> list[Fact]: ...

    async def profile(self, tenant: str) -> Any: ...

    async def once(self, name: str, call: Callable[[], Any], reconcile: Callable[[], Any] | None) -> Any: ...

    async def external(
        self, external_id: Any, poll: Poll | None, cancel: Cancel | None, limits: ExternalWorkLimits
    ) -> Any: ...


@dataclass(frozen=True)
class ExternalWorkLimits:
    """How often outside work is asked for, and how long it may wait, run, and take in all."""

    poll_interval: Duration
    queue_timeout: Duration | None
    run_timeout: Duration | None
    total_timeout: Duration | None


@dataclass(frozen=True)
class Context:
    """`attempt` counts from 1. `maybe_done` is True if an earlier attempt began and may have had its effects.

    When a person sent the work back, `feedback` is what they said. `former` is the last result that this job had, as
    JSON values, if it is made anew.
    """

    run: UUID
    tenant: str
    pipeline: str
    step: str
    item: str = ""
    revision: int = 1
    attempt: int = 1
    maybe_done: bool = False
    feedback: Feedback | None = None
    previous_result: Any = None
    paths: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    backend: ContextBackend | None = field(default=None, repr=False, compare=False)

    @property
    def effect_key(self) -> str:
        """The same for every attempt at this work: for a call outside that must not be doubled."""
        return f"{self.subject_key}:{self.revision}"

    @property
    def subject_key(self) -> str:
        """The same for every revision too: for a thing outside that newer revisions update."""
        return f"{self.run}:{self.step}:{self.item}"

    @property
    def callback_url(self) -> str | None:
        """A one-time address, for use within `once`, at which the outside may say that it is done.

        None unless RETOMA_PUBLIC_URL says where this server is reached.
        """
        return self.backend.callback_url if self.backend else None

    def path(self, file: File) -> Path:
        """Where a file is, that this job's item or results name. It may only be read."""
        try:
            return Path(self.paths[file.file])
        except KeyError:
            raise FileNotFoundError(f"this job's item and results name no file {file.file}") from None

    def charge(
        self,
        provider: str,
        what: str,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        units: float = 0,
        micros: int | None = None,
    ) -> None:
        """Note what this attempt has used of a provider, whatever becomes of the attempt.

        `what` is a model, a voice, a machine. `micros` is the sum in millionths of a US dollar, if the provider told
        it; otherwise it is reckoned by the table of prices.
        """
        noted = Charge(provider, what, tokens_in, tokens_out, units, micros)
        if self.backend is not None:
            self.backend.charge(noted)

    async def save_file(self, content: bytes | Path, name: str) -> File:
        """Keep a file by its content; what names it in its result lets later steps read it with `path`."""
        if self.backend is None:
            raise RuntimeError("files need a worker: test this step with retoma.testing.sandbox")
        return await self.backend.save_file(content, name)

    async def remember(self, facts: Sequence[Fact], *, language: str, about: str = "") -> None:
        """Keep what was learnt for this tenant, each text once, to be found by its words and what it is `about`."""
        if self.backend is not None:
            await self.backend.remember(facts, language, about)

    async def recall(self, query: str, *, language: str, limit: int = 20) -> list[Fact]:
        """What is known for this tenant and has more than half of these words, in whatever form; the nearest first."""
        return [] if self.backend is None else await self.backend.recall(query, language, limit)

    async def profile(self) -> Any:
        """What the application knows of this tenant now, as `Client.set_profile` kept it; None if that is nothing."""
        return None if self.backend is None else await self.backend.profile(self.tenant)

    async def now(self) -> datetime:
        """The database's time, which all workers share; in a step called by its unit test the machine's."""
        return datetime.now(UTC) if self.backend is None else await self.backend.now()

    async def limit_run(self, limit: Duration) -> None:
        """Let the whole run fail if it is not over so long from the first call of this in it."""
        if self.backend is not None:
            await self.backend.limit_run(limit)

    async def once(self, name: str, call: Callable[[], Any], *, reconcile: Callable[[], Any] | None = None) -> Any:
        """What `call` gives, recorded under `name`, so that no later attempt at this job calls it again.

        After a crash between the call and its record nobody knows whether it happened: then `reconcile` is asked
        first, which gives what the call gave, or None if it never happened. Both may be async. The value is JSON.
        """
        if self.backend is None:  # a step called by its unit test
            return await call_maybe_async(call)
        return await self.backend.once(name, call, reconcile)

    async def external(
        self,
        external_id: Any,
        *,
        poll: Poll | None = None,
        cancel: Cancel | None = None,
        poll_interval: Duration = 10,
        queue_timeout: Duration | None = None,
        run_timeout: Duration | None = None,
        total_timeout: Duration | None = None,
    ) -> Any:
        """Wait for work that goes on outside, without holding a worker; the job keeps its slots.

        The function ends here. When the outside has ended, it is called again, and then this gives the result or
        raises OutsideFailed. `poll` says how the work stands, and `cancel` ends it: methods of a resource of the step,
        or functions at the top of their module. Without `poll` the body of the callback is the result.
        It is asked for every ten seconds, may wait outside for `queued`, work for `running`, and take `total` in all
        (the step's timeout, if not given).
        """
        if self.backend is None:
            raise RuntimeError("outside work needs a worker: test this step with retoma.testing.sandbox")
        return await self.backend.external(
            external_id, poll, cancel, ExternalWorkLimits(poll_interval, queue_timeout, run_timeout, total_timeout)
        )


class ChildContextBackend:
    """For a child process, which has no way to the database: its worker writes down what it charges."""

    callback_url = None

    def __init__(self) -> None:
        self.charges: list[Charge] = []

    def charge(self, charge: Charge) -> None:
        self.charges.append(charge)

    async def now(self) -> datetime:
        raise DefinitionError(_NO_DATABASE)

    async def limit_run(self, *_: object) -> None:
        raise DefinitionError(_NO_DATABASE)

    async def save_file(self, *_: object) -> File:
        raise DefinitionError(_NO_DATABASE)

    async def remember(self, *_: object) -> None:
        raise DefinitionError(_NO_DATABASE)

    async def recall(self, *_: object) -> list[Fact]:
        raise DefinitionError(_NO_DATABASE)

    async def profile(self, *_: object) -> Any:
        raise DefinitionError(_NO_DATABASE)

    async def once(self, *_: object) -> Any:
        raise DefinitionError(_NO_DATABASE)

    async def external(self, *_: object) -> Any:
        raise DefinitionError(_NO_DATABASE)


_NO_DATABASE = "an isolated step has no way to the database: leave once, external and save_file to a step of its own"


async def call_maybe_async(call: Callable[[], Any]) -> Any:
    """What a function gives that may be async."""
    given = call()
    return await given if hasattr(given, "__await__") else given
