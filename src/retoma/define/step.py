"""A step: one function of a pipeline, and all that its decorator said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from retoma.define.durations import minutes
from retoma.define.feedback import FeedbackCheck
from retoma.define.isolation import Isolation
from retoma.define.items import ItemCounts, finished
from retoma.define.keys import Key
from retoma.define.pool import Pool
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.review import ReviewPolicy

OnFailure = Literal["stop", "continue", "review"]
ProceedWhen = Callable[[ItemCounts], bool]

DEFAULT_TIMEOUT = minutes(10)


@dataclass(frozen=True)
class Policy:
    """How a step is queued, tried and given up. A higher priority is sooner; `slots` are of its pool.

    `work_limit` is how long all attempts at an item may run, without the waits between them. What `publishes` is never
    taken over from another run.
    """

    queue: str = "default"
    priority: int = 0
    retry: Retry = DEFAULT_RETRY
    timeout: timedelta = DEFAULT_TIMEOUT
    total_timeout: timedelta | None = None
    on_failure: OnFailure = "stop"
    isolation: Isolation | None = None
    pool: Pool | None = None
    slots: int = 1
    publishes: bool = False
    work_limit: timedelta | None = None


@dataclass(frozen=True)
class Binding:
    """Where the value of one data parameter comes from.

    `name` is the input field, the step, or the source of the item. `part` is the index in the item when the
    step has several sources, so that items are lists; otherwise None. An annotation that is missing or cannot
    be resolved is Any.
    """

    parameter: str
    kind: Literal["input", "step", "items", "item"]
    name: str
    position: int
    annotation: Any = Any
    optional: bool = False
    default: Any = None
    part: int | None = None


@dataclass(frozen=True)
class Resource:
    """A parameter right of `*`: machinery that the application provides, or `ctx`."""

    name: str
    annotation: Any = Any
    optional: bool = False


@dataclass(frozen=True)
class Step:
    """One step of a pipeline. A hidden one was not written by the user and calls no user's code.

    `continues` are the steps whose retries and work on the same item count with those of this one.
    """

    pipeline: str
    name: str
    function: Callable[..., Any]
    bindings: tuple[Binding, ...]
    resources: tuple[Resource, ...]
    returns: Any
    policy: Policy
    sources: tuple[str, ...] = ()
    key: tuple[Key | None, ...] | None = None
    after: tuple[str, ...] = ()
    continues: tuple[str, ...] = ()
    when: Callable[..., bool] | None = None
    when_parameters: tuple[str, ...] = ()
    proceed_when: ProceedWhen | None = None
    internal: bool = False
    review: ReviewPolicy | None = None
    retired: bool = False  # only for runs that were started before
    feedback: FeedbackCheck | None = None

    @property
    def each(self) -> bool:
        return bool(self.sources)

    @property
    def source(self) -> str | None:
        """The name of the step whose result is the list of this step's items."""
        return source_name(self.sources) if self.sources else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input fields that the function takes, in order."""
        return tuple(binding.name for binding in self.bindings if binding.kind == "input")

    def should_run(self, values: Mapping[str, Any]) -> bool:
        """What `when=` says to these values of the data parameters, by name; True without a `when=`."""
        if self.when is None:
            return True
        return bool(self.when(**{name: values[name] for name in self.when_parameters}))

    def should_proceed(self, counts: ItemCounts) -> bool:
        """Whether a join on items that ended like this goes on."""
        return (self.proceed_when or finished())(counts)


def source_name(sources: tuple[str, ...]) -> str:
    """The step that gives the items of `each(*sources)`; with several sources it is a hidden one."""
    return "*".join(sources)
