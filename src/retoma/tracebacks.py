"""Release the memory that a handled error still holds."""

from __future__ import annotations


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of a handled error, and of every error that it refers to.

    Frames hold the data of their functions, such as the body of a request. A frame with a variable for the error is a
    reference cycle, which stays until the next garbage collection, and Retoma's processes collect rarely.
    """
    pending: list[BaseException | None] = [error]
    seen = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        BaseException.with_traceback(each, None)  # the error's class may prevent setting attributes
        pending += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
