"""Feedback checks: a function of a step that rejects unsupported feedback before work is sent back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, get_type_hints

from retoma.define.codec import encode_any, get_codec
from retoma.define.definition_errors import Location, suggest_name
from retoma.define.review import Feedback

Check = Callable[..., None]


@dataclass(frozen=True)
class FeedbackCheck:
    """A function of the feedback, of inputs and results by name, and of resources right of `*`.

    It raises FeedbackNotSupported, with a message for the reviewer that lists what the step supports.
    """

    function: Check
    parameters: Mapping[str, Any]
    resources: tuple[str, ...]

    def __call__(self, feedback: Feedback, known: Mapping[str, Any], resources: Mapping[str, Any]) -> None:
        """Raise FeedbackNotSupported if the step cannot act on this. `known` are inputs and results as plain JSON."""
        values = {name: get_codec(kind).decode(encode_any(known.get(name))) for name, kind in self.parameters.items()}
        self.function(feedback, **values, **{name: resources[name] for name in self.resources})


def build_feedback_check(function: Check | None, names: Mapping[str, Any], location: Location) -> FeedbackCheck | None:
    """Return the check that a step declares; `names` are the inputs and plain steps that it may read."""
    if function is None:
        return None
    if not callable(function) or iscoroutinefunction(function):
        raise location.error(f"feedback= is {function!r}; pass a plain function of the feedback")
    parameters = list(signature(function).parameters.values())
    read = [each.name for each in parameters[1:] if each.kind is not Parameter.KEYWORD_ONLY]
    for name in read:
        if name not in names:
            raise location.error(
                f"feedback= takes {name!r}, which is neither an input nor a plain step above; "
                f"{suggest_name(name, names)}"
            )
    kinds = get_type_hints(function)
    needed = tuple(each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY)
    return FeedbackCheck(function, {name: kinds.get(name, Any) for name in read}, needed)
