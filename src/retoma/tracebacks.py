"""Memory that a handled error still holds."""

from __future__ import annotations


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that was answered or recorded, and of every error that it refers to.

    Frames hold what their functions worked on: the body of a request, a document. A frame with a variable for the
    error is a reference cycle, which stays until the next garbage collection, and our processes collect rarely.
    """
    pending: list[BaseException | None] = [error]
    seen = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        BaseException.with_traceback(each, None)  # an error may refuse to have its attributes set
        pending += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
