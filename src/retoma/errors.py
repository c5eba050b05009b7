"""What callers of Retoma meet, and the two requests that a step may make.

RetomaError
├── DefinitionError        a pipeline or an application is written wrong; raised at import
├── DatabaseUnavailable    no database can be reached or started
├── SchemaMismatch         the database's schema is older or newer than this code
├── NotFound               no such run, pipeline or step
├── InvalidInput           a pipeline's input model refuses what a run was to be started with
├── Conflict               the same idempotency key was used for another input
├── RunFailed              `run` met a run that did not complete
├── Unrecordable           a value that the database cannot hold
└── WorkerGone             this worker was declared dead; its jobs are others' now
RetryLater                 asked by a step: try again after a delay, without using up an attempt
GiveUp                     asked by a step: this attempt failed for good, do not retry
"""

from __future__ import annotations

from datetime import timedelta


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


class InvalidInput(RetomaError):
    """The pipeline's input model refuses this input. Says field by field why."""


class Conflict(RetomaError):
    """The same idempotency key came with another input."""


class RunFailed(RetomaError):
    """The run that `run` started and waited for did not complete."""


class Unrecordable(RetomaError):
    """The database cannot hold one of the values of a call. Nothing of the call was committed."""


class WorkerGone(RetomaError):
    """This worker was declared dead by another. What it held is no longer its own."""


class RetryLater(Exception):
    """Ask to be run again after `delay`, of which a plain number is seconds; the attempt is not counted."""

    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        self.delay = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        super().__init__(reason or f"asked to run again in {self.delay.total_seconds():g} s")


class GiveUp(Exception):
    """Fail this job for good. `code` is what people and programs will see."""

    def __init__(self, reason: str, code: str = "GAVE_UP") -> None:
        super().__init__(reason)
        self.code = code
