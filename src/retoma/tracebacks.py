"""Release the memory that a handled error still holds."""

from __future__ import annotations

_get_cause = vars(BaseException)["__cause__"].__get__
_get_context = vars(BaseException)["__context__"].__get__
_get_exceptions = vars(BaseExceptionGroup)["exceptions"].__get__


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
        # Read them as Python stores them: the error's class may replace them by attributes that raise.
        pending += [_get_cause(each), _get_context(each)]
        if issubclass(type(each), BaseExceptionGroup):
            pending += _get_exceptions(each)
