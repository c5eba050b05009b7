"""The errors that Retoma raises, and the exceptions that a step raises to control its own job.

RetomaError
├── DefinitionError        a pipeline or an application is defined wrongly; raised at import
├── DatabaseUnavailable    no database can be reached or started
├── SchemaMismatch         the database schema is older or newer than this code
├── NotFound               no such run, pipeline, step or other object
│   └── Gone               the object existed but is no longer available
│       └── RunRemoved     the run that this idempotency key started was removed
├── InvalidInput           an argument, or the input of a run, is not valid
│   ├── SendBackNotAllowed    the work cannot be sent back to this step, or these items cannot
│   └── FeedbackNotSupported  the step cannot act on this feedback
├── Conflict               the request conflicts with the current state
│   ├── KeyReused          the idempotency key was already used for another input or action
│   ├── RunBusy            the action needs a finished run, and this run is not finished
│   ├── RunHeld            the run is held, so it cannot be erased
│   ├── AlreadyDecided     somebody else decided the review first; `winner` is its current record
│   └── RevisionChanged    the decision is about a revision that is no longer current
├── AccessDenied           the caller may not act on this tenant
│   └── RoleMissing        the caller may see the object, but lacks the role that the action requires
├── UnsafeUrl              a URL that must not be called from here
├── NoResponse             another machine sent no usable response
├── WebhookBodyFailed      the application's `webhook_body` raised; the webhook is retried
├── BadSignature           an incoming webhook has a wrong signature or an old timestamp
├── LeaseLost              the job belongs to another worker now; this attempt is discarded
├── RunFailed              the run that `run` waited for did not complete
├── Unrecordable           a value that the database cannot store
├── TooLarge               a file exceeds the size limit
├── ConnectionKeyMissing   the secrets of connections cannot be encrypted or decrypted with the keys of this process
├── BackupFailed           a backup cannot be taken, is damaged, or cannot be restored here
└── WorkerGone             this worker was declared dead; its jobs were released
RetryLater                 raised by a step: run again after a delay, without using up an attempt
├── RateLimited            also pauses the job's pool until then
├── ProviderDown           also opens the pool's circuit breaker after five in a row
│   └── SubmissionUnknown  the call may have taken effect: `once` calls `find` before it repeats the call
└── ProviderRejected       opens the pool's circuit breaker at once: the provider rejected our credentials or billing
GiveUp                     raised by a step: fail the job without further retries
└── ChildRunFailed         raised in a step: its child run did not complete
NeedsReview                raised by a step: ask a person how to continue
ExternalWorkFailed         raised in a step: its external work failed
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an error. Never raises, whatever the error's own methods do."""
    name = get_class_name(error)
    try:
        message = read_message(error)
    except BaseException:  # noqa: BLE001  (application code: its `__str__` may raise anything)
        message = "its message cannot be read"
    return f"{name}: {message}" if message else name


def read_message(error: BaseException) -> str:
    """Return the message of an error as a plain `str`: a subclass could raise wherever it is written."""
    return "".join([str(error)])


def get_class_name(error: BaseException) -> str:
    """Return the name of an error's class. Never raises, whatever its metaclass does."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def make_readable(error: BaseException) -> BaseException:
    """Return the error, or a plain one that describes it if reading its attributes raises.

    Call it where an error of application code enters ours: `isinstance` and `match` read `__class__`.
    """
    try:
        _ = isinstance(error, RetomaError), error.__cause__, error.__context__, error.__traceback__
    except BaseException:  # noqa: BLE001  (application code: an attribute may raise anything)
        return UnreadableError(f"{describe_error(error)} (its attributes cannot be read)")
    return error


class UnreadableError(Exception):
    """In place of an error of application code whose attributes cannot be read."""


class RetomaError(Exception):
    """The base class of all errors that Retoma raises.

    `message` is English. Mark it with `N_` and name its values `%(name)s` to let pages translate it.
    """

    def __init__(self, message: str = "", /, **values: object) -> None:
        super().__init__(message % values if values else message)
        self.message = message
        self.values = values


class DefinitionError(RetomaError):
    """A pipeline or an application is defined wrongly. The message names the place and the nearest right name."""


class DatabaseUnavailable(RetomaError):
    """No database can be reached or started. The message says what was tried and what to do."""


class SchemaMismatch(RetomaError):
    """The database schema and this code belong to different releases. The message names the command that fixes it."""


class NotFound(RetomaError):
    """No such run, pipeline, step or other object."""


class Gone(NotFound):
    """The object existed but is no longer available, for example a callback that arrives too late."""


class RunRemoved(Gone):
    """The idempotency key has started a run that was removed since. Use another key to start a new run."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the run that the key {key!r} has started was removed: use another key to start a new run")


class InvalidInput(RetomaError):
    """An argument, or the input of a run, is not valid. The message says why, field by field."""


class SendBackNotAllowed(InvalidInput):
    """The work cannot be sent back to this step, or these items cannot. The message lists the possible steps."""


class FeedbackNotSupported(InvalidInput):
    """The step cannot act on this feedback. The message lists what it supports; the review stays open."""


class Conflict(RetomaError):
    """The request conflicts with the current state; the message says how."""


class KeyReused(Conflict):
    """The idempotency key was already used for another input or action."""


class RunBusy(Conflict):
    """The action needs a finished run. The message names the run's current state."""


class RunHeld(Conflict):
    """A held run cannot be erased. The message says why it is held."""


class AlreadyDecided(Conflict):
    """Somebody else has decided this review, or it was withdrawn. `winner` is its current record."""

    def __init__(self, winner: Any) -> None:
        by = f" by {winner.decided_by}" if winner.decided_by else ""
        super().__init__(f"review {winner.id} was already {winner.state}{by}")
        self.winner = winner


class RevisionChanged(Conflict):
    """The decision is about a revision that is no longer current. The message names both revisions."""


class AccessDenied(RetomaError):
    """The caller may not act on this tenant, or not on all tenants."""


class RoleMissing(AccessDenied):
    """The caller may see the object, but lacks the role that the action requires. The message names the role."""


class ConnectionKeyMissing(RetomaError):
    """A connection cannot be encrypted or decrypted by this process. The message says what to set or to enter again."""


class UnsafeUrl(RetomaError):
    """A URL that must not be called from here. The message says why, and which setting would allow it.

    `field` is the path of the URL in the input, such as `images.3.image_url`, if known.
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason = reason
        self.field = field


class NoResponse(RetomaError):
    """Another machine sent no usable response. `maybe_sent` is False if no part of the request can have reached it."""

    def __init__(self, message: str, *, maybe_sent: bool) -> None:
        super().__init__(message)
        self.maybe_sent = maybe_sent


class WebhookBodyFailed(RetomaError):
    """The application's `webhook_body` raised, so the webhook has no body yet."""


class BadSignature(RetomaError):
    """The signature does not match the secret, or the timestamp is too old. The message never reveals the secret."""


class LeaseLost(RetomaError):
    """The attempt no longer owns its job: another worker has it, or the run was stopped."""


class RunFailed(RetomaError):
    """The run that `run` started and waited for did not complete."""


class Unrecordable(RetomaError):
    """The database cannot store one of the values of a call. The whole call was rolled back."""


class TooLarge(RetomaError):
    """A file exceeds the size limit, which the message states."""


class BackupFailed(RetomaError):
    """A backup cannot be taken, is damaged, or cannot be restored here. The message names the part and the remedy."""


class WorkerGone(RetomaError):
    """Another worker declared this worker dead and released its jobs."""


class RetryLater(Exception):
    """Ask to run again after `delay` (a plain number is seconds). The attempt is not counted.

    Delays are capped at one year; after that the step runs again and may raise this again.
    """

    wait_code = "RETRY_LATER"  # by which the SQL functions of pools know this kind of wait

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        super().__init__(reason or f"the step asked to run again in {self.delay.total_seconds():g} s")


class RateLimited(RetryLater):
    """The provider's rate limit was hit: run again after `delay`, and start no other job of the pool until then."""

    wait_code = "RATE_LIMITED"


class ProviderDown(RetryLater):
    """The provider is failing: run again later. After five failures in a row no job of the pool starts for a while,
    on any machine. Then one job probes the provider, and a success lets all jobs start again.

    In a step with a provider chain it is a failed attempt, and the breaker is that of the provider.
    """

    wait_code = "PROVIDER_DOWN"

    def __init__(self, reason: str = "", delay: timedelta | float = 10) -> None:
        super().__init__(delay, reason or "the provider is failing")


class SubmissionUnknown(ProviderDown):
    """The provider's response was lost, so the call may have taken effect. Raise it within `once`, which calls
    `find` before it repeats the call."""


class ProviderRejected(RetryLater):
    """The provider rejected our credentials or billing: no job of the pool starts, and none fails.

    After `delay` one job probes the provider; `retoma pools update POOL --resume` lets all jobs start at once. In a
    step with a provider chain the job uses the next provider at once.
    """

    wait_code = "PROVIDER_REJECTED"

    def __init__(self, reason: str = "", delay: timedelta | float = 600) -> None:
        super().__init__(delay, reason or "the provider rejected our credentials or billing")


class ExternalWorkFailed(Exception):
    """The external work failed, was cancelled or timed out; `code` says which."""

    def __init__(self, reason: str, code: str = "EXTERNAL_WORK_FAILED") -> None:
        super().__init__(reason)
        self.code = code


class GiveUp(Exception):
    """Fail this job without further retries. `code` appears in the API and on the pages."""

    def __init__(self, reason: str, code: str = "GAVE_UP") -> None:
        super().__init__(reason)
        self.code = code


class ChildRunFailed(GiveUp):
    """The child run ended without completing; `code` says how: `CHILD_FAILED`, `CHILD_CANCELLED` and so on."""


class NeedsReview(Exception):
    """Ask a person how to continue: accept (with or without `value` as the result), run again, or reject.

    The job holds no worker or slot while it waits. `code` appears in the API and on the pages.
    """

    def __init__(self, reason: str, *, value: Any = None, code: str = "NEEDS_REVIEW") -> None:
        super().__init__(reason)
        self.value = value
        self.code = code
