"""The `ctx` parameter of a step: facts about its attempt, and the operations that the attempt may perform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from retoma.define.charge import Charge
from retoma.define.durations import Duration
from retoma.define.external_work import Cancel, Find, Poll, Submit
from retoma.define.file import File
from retoma.define.review import Feedback
from retoma.errors import DefinitionError, GiveUp
from retoma.identifiers import ALL_TENANTS
from retoma.records import Fact

if TYPE_CHECKING:
    from retoma.define.pipeline import Input, Pipeline


class ContextBackend(Protocol):
    """Records what an attempt has done, so that later attempts do not repeat it. Provided by the worker."""

    @property
    def callback_url(self) -> str | None: ...

    def charge(self, charge: Charge) -> None: ...

    async def now(self) -> datetime: ...

    async def limit_run(self, limit: Duration) -> None: ...

    async def save_file(self, content: bytes | Path, name: str) -> File: ...

    async def remember(self, facts: Sequence[Fact], language: str, about: str) -> None: ...

    async def recall(self, query: str, language: str, limit: int) -> list[Fact]: ...

    async def profile(self, tenant: str) -> Any: ...

    async def once(
        self, name: str, call: Callable[[], Any], find: Find | None, cancel: Cancel | None, key: str
    ) -> Any: ...

    async def external(
        self,
        submit: Submit,
        find: Find | None,
        poll: Poll | None,
        cancel: Cancel | None,
        key: str,
        limits: ExternalWorkLimits,
    ) -> Any: ...

    async def run_child(
        self, pipeline: Pipeline | str, inputs: Input, tenant: str, key: str | None, rerun: ChildRerun | None
    ) -> dict[str, Any]: ...


@dataclass(frozen=True)
class ExternalWorkLimits:
    """How often external work is polled, and how long it may queue, run, and take in total."""

    poll_interval: Duration
    queue_timeout: Duration | None
    run_timeout: Duration | None
    total_timeout: Duration | None


@dataclass(frozen=True)
class ChildRerun:
    """The rerun of a run that had ended before, from a step on, and the key under which that happens once."""

    from_step: str
    key: str


@dataclass(frozen=True)
class Context:
    """`attempt` counts from 1. `maybe_done` is True if an earlier attempt started and may have had effects.

    If a person sent the work back, `feedback` is their feedback. In a rerun, `previous_result` is the last result of
    this job, as JSON values. If the step takes a provider, `provider` is its name.
    `traceparent` is the header of W3C Trace Context that names this attempt, None unless the worker exports traces.
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
    provider: str | None = None
    traceparent: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    backend: ContextBackend | None = field(default=None, repr=False, compare=False)

    @property
    def effect_key(self) -> str:
        """Return a key that is the same for all attempts of this job, for external calls that must not be repeated."""
        return f"{self.subject_key}:{self.revision}"

    @property
    def subject_key(self) -> str:
        """Return a key that is also the same for all revisions, for an external object that later revisions update."""
        return f"{self.run}:{self.step}:{self.item}"

    @property
    def callback_url(self) -> str | None:
        """Return a one-time URL at which the provider can report completion, for use within `external` or `once`.

        None unless RETOMA_PUBLIC_URL is set.
        """
        return self.backend.callback_url if self.backend else None

    def path(self, file: File) -> Path:
        """Return the path of a file that the job's item or inputs refer to. Only read it."""
        try:
            return Path(self.paths[file.file])
        except KeyError:
            raise FileNotFoundError(f"this job's item and results refer to no file {file.file}") from None

    def charge(
        self,
        provider: str,
        resource: str,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        units: float = 0,
        micros: int | None = None,
    ) -> None:
        """Record what this attempt has used of a provider, whatever the outcome of the attempt.

        `resource` is a model, a voice, a machine. `micros` is the cost in millionths of a US dollar, if the provider
        reported it; otherwise the price list determines it.
        """
        charge = Charge(provider, resource, tokens_in, tokens_out, units, micros)
        if self.backend is not None:
            self.backend.charge(charge)

    async def save_file(self, content: bytes | Path, name: str) -> File:
        """Store a file by its content. Later steps read it with `path` if the result of this step refers to it."""
        if self.backend is None:
            raise RuntimeError("files need a worker: test this step with retoma.testing.sandbox")
        return await self.backend.save_file(content, name)

    async def remember(self, facts: Sequence[Fact], *, language: str, about: str = "") -> None:
        """Store facts for this tenant, each text once. `recall` searches the texts and what they are `about`."""
        if self.backend is not None:
            await self.backend.remember(facts, language, about)

    async def recall(self, query: str, *, language: str, limit: int = 20) -> list[Fact]:
        """Return this tenant's facts that match more than half of the query terms, in any form; best match first."""
        return [] if self.backend is None else await self.backend.recall(query, language, limit)

    async def profile(self) -> Any:
        """Return the current profile of this tenant as `client.tenants.set_profile` stored it, or None."""
        return None if self.backend is None else await self.backend.profile(self.tenant)

    async def now(self) -> datetime:
        """Return the database's time, which all workers share; without a worker, the machine's time."""
        return datetime.now(UTC) if self.backend is None else await self.backend.now()

    async def limit_run(self, limit: Duration) -> None:
        """Fail the whole run if it is not over within `limit` of the first call in this run."""
        if self.backend is not None:
            await self.backend.limit_run(limit)

    async def once(
        self,
        name: str,
        call: Callable[[], Any],
        *,
        find: Find | None = None,
        cancel: Cancel | None = None,
        key: str | None = None,
    ) -> Any:
        """Return the recorded value of `call`: it is recorded under `name`, and later attempts do not repeat the call.

        After a crash between the call and its record, its outcome is unknown. Then `find(key)` is called first: it
        returns what the call returned, or None if the call never took effect. `cancel(value)` ends what the call
        started; it is called if the job ends without a result. Other processes call both: pass methods of a resource
        of the step, or functions at the top of their module. All may be async. The key is `effect_key` unless you pass
        one. The value is JSON.
        """
        if self.backend is None:  # called by a unit test
            return await call_maybe_async(call)
        return await self.backend.once(name, call, find, cancel, self.effect_key if key is None else key)

    async def external(
        self,
        submit: Submit,
        *,
        find: Find | None = None,
        poll: Poll | None = None,
        cancel: Cancel | None = None,
        key: str | None = None,
        poll_interval: Duration = 10,
        queue_timeout: Duration | None = None,
        run_timeout: Duration | None = None,
        total_timeout: Duration | None = None,
    ) -> Any:
        """Submit external work, and wait for it without holding a worker; the job keeps its slots.

        `submit` returns the external id. It is called as `once` calls its `call`, with the same `find` and `key`. The
        function ends here. Once the external work has ended, the function is called again, and this returns the result
        or raises ExternalWorkFailed. `poll` returns the state of the work, and `cancel` ends it; both take the external
        id. Without `poll` the body of the callback is the result. The work is polled every `poll_interval`, may queue
        for `queue_timeout`, run for `run_timeout` and take `total_timeout` in all (default: the step's timeout).
        """
        if self.backend is None:
            raise RuntimeError("external work needs a worker: test this step with retoma.testing.sandbox")
        limits = ExternalWorkLimits(poll_interval, queue_timeout, run_timeout, total_timeout)
        key = self.effect_key if key is None else key
        return await self.backend.external(submit, find, poll, cancel, key, limits)

    async def run_child(
        self,
        pipeline: Pipeline | str,
        inputs: Input = None,
        *,
        tenant: str | None = None,
        key: str | None = None,
        rerun_from: str | None = None,
        rerun_key: str | None = None,
    ) -> dict[str, Any]:
        """Start a run of another pipeline of this application, and wait for it without holding a worker.

        The function ends here. Once the child has completed, the function is called again, and this returns the results
        of the child's last steps, those that no other step depends on. Raise ChildRunFailed if the child ends in any
        other way. A step can wait for one child; for many, use an `each` step.

        Cancelling this run cancels the child. A rerun of this job returns the results of the same child if its input is
        the same, and lets a failed child continue. With a `key`, a run that was started under it before, by anybody, is
        awaited instead of starting another; it is not cancelled with this run. If that run had ended before this one
        was created, `rerun_from` reruns it from this step on, once for each `rerun_key`. The tenant is that of
        this run. Only a run of the tenant "*" may pass another.
        """
        rerun = ChildRerun(rerun_from, rerun_key) if key and rerun_from and rerun_key else None
        if rerun is None and (rerun_from or rerun_key):
            raise DefinitionError("run_child: rerun_from= needs rerun_key=, and the key= of the run")
        if self.backend is None:
            raise RuntimeError("child runs need a worker: test this step with retoma.testing.sandbox")
        if tenant not in (None, self.tenant) and self.tenant != ALL_TENANTS:
            raise GiveUp(
                f"a run of tenant {self.tenant!r:.80} cannot start one of tenant {tenant!r:.80}; only a run of tenant "
                f"{ALL_TENANTS!r} can",
                "OTHER_TENANT",
            )
        return await self.backend.run_child(pipeline, inputs, tenant or self.tenant, key, rerun)


class ChildContextBackend:
    """The backend in a child process, which has no database connection: its worker records what it charges."""

    callback_url = None

    def __init__(self) -> None:
        self.charges: list[Charge] = []

    def charge(self, charge: Charge) -> None:
        self.charges.append(charge)

    async def _refuse(self, *_: object) -> Any:
        raise DefinitionError(
            "an isolated step has no database connection: "
            "move once, external, run_child and save_file to a separate step"
        )

    now = limit_run = save_file = remember = recall = profile = once = external = run_child = _refuse


async def call_maybe_async(call: Callable[[], Any]) -> Any:
    """Call a function that may be async and return its result."""
    result = call()
    return await result if hasattr(result, "__await__") else result
