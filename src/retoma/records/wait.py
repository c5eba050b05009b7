"""Why jobs wait, and why runs are stuck."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from retoma.translations import N_

UNKNOWN = "\N{EN DASH}"
NO_PROVIDER = "NO_PROVIDER"  # the code of a job that waits for a provider of its chain


class WaitReason(StrEnum):
    """Why a job whose dependencies are met does not run."""

    DELAYED = "delayed"
    EXTERNAL_WORK = "external_work"
    CHILD_RUN = "child_run"
    CLEANUP = "cleanup"
    PERSON = "person"
    UNDEFINED_STEP = "undefined_step"
    NO_WORKER = "no_worker"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_FULL = "queue_full"
    SUSPECT = "suspect"
    CAPACITY = "capacity"
    POOL = "pool"
    POOL_TOO_SMALL = "pool_too_small"
    POOL_PAUSED = "pool_paused"
    POOL_RATE = "pool_rate"
    POOL_SHARE = "pool_share"
    PROVIDER_DOWN = "provider_down"
    PROVIDER_REJECTED = "provider_rejected"
    NO_PROVIDER = "no_provider"
    NOT_CLAIMED = "not_claimed"


class StuckCause(StrEnum):
    """Why a run makes no progress, if no job waits. Otherwise the cause is the `WaitReason`."""

    NO_PROGRESS = "no_progress"
    NOTHING_RUNS = "nothing_runs"


# The one sentence for each reason: as it is in the API, the terminal and logs, translated on pages.
REASON_MESSAGES: Mapping[str, str] = {
    WaitReason.DELAYED: N_("delayed until %(until)s"),
    WaitReason.EXTERNAL_WORK: N_("waiting for external work, which is polled again at %(until)s"),
    WaitReason.CHILD_RUN: N_("waiting for its child run %(child)s"),
    WaitReason.CLEANUP: N_("cleaning up what the job left at a provider; next try at %(until)s"),
    WaitReason.PERSON: N_("waiting for a person's decision"),
    WaitReason.UNDEFINED_STEP: N_(
        "no worker defines the step '%(step)s' as this run needs it; retoma check APP says why"
    ),
    WaitReason.NO_WORKER: N_(
        "no running worker serves queue '%(queue)s' of this pipeline; start one: retoma worker APP -q %(queue)s"
    ),
    WaitReason.QUEUE_PAUSED: N_(
        "queue '%(queue)s' is paused; retoma queues shows by whom and why; resume it: retoma queues resume %(queue)s"
    ),
    WaitReason.QUEUE_FULL: N_("waiting for capacity: queue '%(queue)s' runs as many jobs as its limit allows"),
    WaitReason.SUSPECT: N_("it was running when a worker died, so it is retried in isolation, one at a time"),
    WaitReason.CAPACITY: N_("waiting for capacity: every worker of queue '%(queue)s' is full"),
    WaitReason.POOL: N_("waiting for capacity: pool '%(pool)s' has too few free slots"),
    WaitReason.POOL_TOO_SMALL: N_(
        "pool '%(pool)s' has fewer slots than the job needs; raise it: retoma pools update %(pool)s"
    ),
    WaitReason.POOL_PAUSED: N_(
        "the provider behind pool '%(pool)s' is rate limiting; retoma pools list shows until when"
    ),
    WaitReason.POOL_RATE: N_("pool '%(pool)s' has reached its rate of job starts per second"),
    WaitReason.POOL_SHARE: N_("its tenant holds as many slots of pool '%(pool)s' as one tenant may"),
    WaitReason.PROVIDER_DOWN: N_("the provider behind pool '%(pool)s' is failing; one job at a time probes it"),
    WaitReason.PROVIDER_REJECTED: N_(
        "the provider behind pool '%(pool)s' rejected our credentials: check the API key and billing, then "
        "retoma pools update %(pool)s --resume"
    ),
    WaitReason.NO_PROVIDER: N_(
        "no provider of the step's chain is available before %(until)s; retoma pools list shows why"
    ),
    WaitReason.NOT_CLAIMED: N_("ready; if it stays ready, no worker of queue '%(queue)s' defines its pipeline"),
    StuckCause.NO_PROGRESS: N_("a worker has held it past its time limit without progress"),
    StuckCause.NOTHING_RUNS: N_("nothing is running although it is not finished"),
}


MANY_CHILD_RUNS = N_("each waiting for its child run, such as %(child)s")


@dataclass(frozen=True)
class Wait:
    """Jobs of one step that wait for the same reason; `until` is when the first of them is due, `item` one of them.

    `child` is the child run that one of them waits for.
    """

    step: str
    queue: str
    jobs: int
    item: str
    reason: WaitReason
    until: datetime | None
    code: str | None
    pool: str | None = None
    child: UUID | None = None

    @property
    def message(self) -> str:
        """Return the sentence for its reason, with placeholders for `get_values`."""
        is_plural = self.reason is WaitReason.CHILD_RUN and self.jobs > 1
        return MANY_CHILD_RUNS if is_plural else REASON_MESSAGES[self.reason]

    @property
    def explanation(self) -> str:
        """Return the reason as a sentence, with what to do about it, if anything. Its time is in UTC."""
        return self.explain(lambda until: f"{until:%Y-%m-%d %H:%M:%S} UTC")

    def explain(self, format_time: Callable[[datetime], str]) -> str:
        """Return the explanation with its time formatted for the reader."""
        one = f"{self.step} of {self.item}" if self.item else self.step
        subject = f"{self.jobs} jobs of {self.step}" if self.jobs > 1 else one
        until = format_time(self.until) if self.until else UNKNOWN
        why = self.message % self.get_values(until)
        code = f" ({self.code})" if self.code and self.reason is WaitReason.DELAYED else ""
        return f"{subject}: {why}{code}"

    def get_values(self, until: str) -> dict[str, str]:
        """Return the values of its message. `until` is its time, formatted for the reader."""
        child = UNKNOWN if self.child is None else str(self.child)
        return {"step": self.step, "queue": self.queue, "pool": self.pool or UNKNOWN, "until": until, "child": child}
