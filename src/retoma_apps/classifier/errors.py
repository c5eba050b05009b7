"""Errors of the classifier that have a Portuguese sentence beside the English one."""

from __future__ import annotations

from retoma.errors import InvalidInput, NotFound


class Missing(NotFound):
    """There is no such project, execution or document. `pt` says so in Portuguese."""

    def __init__(self, message: str, *, pt: str) -> None:
        super().__init__(message)
        self.pt = pt


class Refused(InvalidInput):
    """A value is not accepted. `pt` says why in Portuguese."""

    def __init__(self, message: str, *, pt: str) -> None:
        super().__init__(message)
        self.pt = pt
