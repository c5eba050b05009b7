"""A step: one function of a pipeline with the options of its decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from retoma.define.durations import minutes
from retoma.define.feedback import FeedbackCheck
from retoma.define.isolation import Isolation
from retoma.define.items import ItemCounts, all_finished
from retoma.define.keys import Key
from retoma.define.pool import Pool
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.review import ReviewPolicy

OnFailure = Literal["stop", "continue", "review"]
EstimatedCost = float | Decimal | Callable[..., float | Decimal] | None
ProceedWhen = Callable[[ItemCounts], bool]

DEFAULT_TIMEOUT = minutes(10)


@dataclass(frozen=True)
class Policy:
    """How a step is queued, retried and failed. Higher priorities run first; `slots` are slots of its pool.

    `work_limit` limits the total run time of all attempts at an item, without the waits between them. After attempts
    that cost `cost_limit` US dollars together, no other attempt starts. The result of a step that `publishes` is never
    reused in another run.
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
    cost_limit: float | None = None


@dataclass(frozen=True)
class Binding:
    """The source of the value of one data parameter.

    `name` is the input field, the step, or the source of the item. `part` is the index within the item if the
    step has several sources, whose items are lists; otherwise None. A missing or unresolvable annotation is Any.
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
    """A parameter right of `*`: a resource that the application provides, or `ctx`."""

    name: str
    annotation: Any = Any
    optional: bool = False


@dataclass(frozen=True)
class Step:
    """One step of a pipeline. An internal step is created by Retoma and calls no user code.

    `continues` are the steps that share their retries and work limit for an item with this one.
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
    retired: bool = False  # only part of runs that were started before
    feedback: FeedbackCheck | None = None
    estimated_cost: EstimatedCost = None
    estimate_parameters: tuple[str, ...] = ()

    @property
    def each(self) -> bool:
        return bool(self.sources)

    @property
    def source(self) -> str | None:
        """Return the name of the step whose result is the list of this step's items."""
        return source_name(self.sources) if self.sources else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the input fields that the function takes, in order."""
        return tuple(binding.name for binding in self.bindings if binding.kind == "input")

    @property
    def may_charge(self) -> bool:
        """Return whether its options say that it costs money: then hard budgets are checked before each attempt."""
        return self.estimated_cost is not None or self.policy.cost_limit is not None

    def should_run(self, values: Mapping[str, Any]) -> bool:
        """Return the result of `when=` for these values of the data parameters by name; True without a `when=`."""
        if self.when is None:
            return True
        return bool(self.when(**{name: values[name] for name in self.when_parameters}))

    def estimate_cost(self, values: Mapping[str, Any]) -> float | Decimal | None:
        """Return what an attempt is expected to cost in US dollars; None without `estimated_cost=`."""
        if callable(self.estimated_cost):
            return self.estimated_cost(**{name: values[name] for name in self.estimate_parameters})
        return self.estimated_cost

    def should_proceed(self, counts: ItemCounts) -> bool:
        """Return whether a join proceeds with these counts."""
        return (self.proceed_when or all_finished())(counts)


def source_name(sources: tuple[str, ...]) -> str:
    """Return the step that provides the items of `each(*sources)`; with several sources it is an internal one."""
    return "*".join(sources)
