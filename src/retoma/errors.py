"""What callers of Retoma meet, and the two requests that a step may make.

RetomaError
├── DefinitionError        a pipeline or an application is written wrong; raised at import
├── DatabaseUnavailable    no database can be reached or started
├── SchemaMismatch         the database's schema is older or newer than this code
├── NotFound               no such run, pipeline or step
│   └── Gone               it was there, and its time has passed
├── InvalidInput           a pipeline's input model refuses what a run was to be started with
│   ├── NoWayBack          work cannot be sent back to this step, or not these items of it
│   └── CannotFollow       a step cannot follow the feedback that its work was to be sent back with
├── Conflict               it is at odds with what is there
│   ├── KeyReused          the same idempotency key was used for another input, or for another act
│   ├── AtWork             an act needs a run that is over, and this one is not
│   ├── AlreadyDecided     a colleague was first; `winner` is the review as it stands
│   └── RevisionChanged    a person decides about another revision than they saw
├── UnsafeUrl              a URL that must not be called from here
├── NoAnswer               another machine did not answer, or not with what was asked
├── NoBody                 the application's `webhook_body` raised; the webhook is tried again
├── BadSignature           a webhook that came in is not signed with the secret, or not just now
├── LeaseLost              a job is another worker's now; what this attempt still does is discarded
├── RunFailed              `run` met a run that did not complete
├── Unrecordable           a value that the database cannot hold
├── TooLarge               a file has more bytes than was allowed
└── WorkerGone             this worker was declared dead; its jobs are others' now
RetryLater                 asked by a step: try again after a delay, without using up an attempt
├── RateLimited            the same, and nothing else of its pool begins until then
├── ProviderDown           the same; from the fifth in a row on nothing else of its pool begins for a while
│   └── OutcomeUnknown     the same, and it may have been done: `once` asks `reconcile` first
└── ProviderRefuses        the same at once: our key or our payment is not accepted
GiveUp                     asked by a step: this attempt failed for good, do not retry
NeedsReview                asked by a step: let a person say how to go on
OutsideFailed              met by a step: what it had done outside has failed
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error. Never raises, whatever the error's own methods do."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001  (application code: its `__str__` may raise anything)
        message = "its message cannot be read"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


class RetomaError(Exception):
    """The root of every error that callers of Retoma meet."""


class DefinitionError(RetomaError):
    """A pipeline or an application is written wrong. Says where, and the nearest right name."""


class DatabaseUnavailable(RetomaError):
    """No database can be reached or started. Says what was tried and what to do."""


class SchemaMismatch(RetomaError):
    """The schema and this code are of different releases. Says which command mends it."""


class NotFound(RetomaError):
    """No such run, pipeline or step."""


class Gone(NotFound):
    """It was there, and its time has passed, as that of a callback that came too late."""


class InvalidInput(RetomaError):
    """The pipeline's input model refuses this input. Says field by field why."""


class SendBackNotAllowed(InvalidInput):
    """Work cannot be sent back there, or not these items. Says where it may go."""


class FeedbackNotSupported(InvalidInput):
    """A step cannot follow this feedback. Lists what it can follow; the review stays open.

    Pages in Portuguese show `pt`, if it is given.
    """

    def __init__(self, message: str, *, pt: str | None = None) -> None:
        super().__init__(message)
        self.pt = pt or message


class Conflict(RetomaError):
    """It is at odds with what is there. Says what that is."""


class KeyReused(Conflict):
    """The same idempotency key came with another input, or for another act."""


class RunBusy(Conflict):
    """This act needs a run that is over. Says what the run does instead."""


class AlreadyDecided(Conflict):
    """Somebody else has decided this review, or it is no longer asked. `winner` is the review as it stands."""

    def __init__(self, winner: Any) -> None:
        who = f" by {winner.decided_by}" if winner.decided_by else ""
        super().__init__(f"review {winner.id} was {winner.state}{who} already")
        self.winner = winner


class RevisionChanged(Conflict):
    """What was decided about is not what the person saw. Says both revisions."""


class UnsafeUrl(RetomaError):
    """A URL that must not be called from here. Says why, and the setting that would allow it.

    `field` is where in the input it stands, such as `images.3.image_url`, if that is known.
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason = reason
        self.field = field


class NoResponse(RetomaError):
    """Another machine gave no usable answer. `maybe_sent` is False if nothing of the request can have reached it."""

    def __init__(self, message: str, *, maybe_sent: bool) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class WebhookBodyFailed(RetomaError):
    """What a webhook should say cannot be made just now."""


class BadSignature(RetomaError):
    """What came in is not signed with this secret, or not just now. Says which, and nothing of the secret."""


class LeaseLost(RetomaError):
    """This attempt is no longer the job's: it was given to another worker, or its run has stopped."""


class RunFailed(RetomaError):
    """The run that `run` started and waited for did not complete."""


class Unrecordable(RetomaError):
    """The database cannot hold one of the values of a call. Nothing of the call was committed."""


class TooLarge(RetomaError):
    """A file has more bytes than was allowed. Says how many may be kept."""


class WorkerGone(RetomaError):
    """This worker was declared dead by another. What it held is no longer its own."""


class RetryLater(Exception):
    """Ask to be run again after `delay`, of which a plain number is seconds; the attempt is not counted.

    After a year at the latest it is run again, and may ask anew.
    """

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        super().__init__(reason or f"asked to run again in {self.delay.total_seconds():g} s")


class RateLimited(RetryLater):
    """A provider says "too many": run again after `delay`, and let nothing else of the job's pool begin before."""


class ProviderDown(RetryLater):
    """A provider fails: run again later. From the fifth failure in a row on, nothing of the job's pool begins for a
    while, on any machine; then one job tries, and what succeeds lets all begin again."""

    def __init__(self, reason: str = "", delay: timedelta | float = 10) -> None:
        super().__init__(delay, reason or "the provider fails")


class SubmissionUnknown(ProviderDown):
    """A provider's answer was lost: what was asked of it may have been done. Raised within `once`, which lets its
    `reconcile` look before anything is asked again."""


class ProviderRejected(RetryLater):
    """A provider does not accept our key or our payment: nothing of the job's pool begins, and nothing fails.

    After `delay` one job tries whether it has been mended; `retoma pools set POOL --resume` lets all begin at once.
    """

    def __init__(self, reason: str = "", delay: timedelta | float = 600) -> None:
        super().__init__(delay, reason or "the provider refuses us")


class ExternalWorkFailed(Exception):
    """What was done outside has failed, was cancelled, or took too long. `code` says which."""

    def __init__(self, reason: str, code: str = "EXTERNAL_WORK_FAILED") -> None:
        super().__init__(reason)
        self.code = code


class GiveUp(Exception):
    """Fail this job for good. `code` is what people and programs will see."""

    def __init__(self, reason: str, code: str = "GAVE_UP") -> None:
        super().__init__(reason)
        self.code = code


class NeedsReview(Exception):
    """Let a person say how to go on: accept (with `value` as the result, or without any), run it again, or reject.

    Nothing is held while they think. `code` is what people and programs will see.
    """

    def __init__(self, reason: str, *, value: Any = None, code: str = "NEEDS_REVIEW") -> None:
        super().__init__(reason)
        self.value = value
        self.code = code
