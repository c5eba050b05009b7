"""Errors of the classifier with a Portuguese message besides the English one."""

from __future__ import annotations

from retoma.errors import InvalidInput, NotFound


class Missing(NotFound):
    """There is no such project, execution or document. `pt` is the message in Portuguese."""

    def __init__(self, message: str, *, pt: str) -> None:
        super().__init__(message)
        self.pt = pt


class Refused(InvalidInput):
    """A value is not accepted. `pt` is the message in Portuguese."""

    def __init__(self, message: str, *, pt: str) -> None:
        super().__init__(message)
        self.pt = pt
