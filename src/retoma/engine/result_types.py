"""Results that people enter, checked by the type that the application declares for the step."""

from __future__ import annotations

from retoma.define.pipeline import Pipeline
from retoma.errors import InvalidInput


def check_result(pipeline: Pipeline | None, name: str, step: str, text: str) -> str:
    """Return the JSON of a person's result as the step would return it.

    `pipeline` is the definition of the pipeline `name`, or None if the application is not loaded here. Raise
    InvalidInput if the type of the step is unknown, and ValueError or TypeError if the result does not have it.
    """
    if pipeline is None:
        raise InvalidInput(
            f"a result of {step!r} cannot be checked here: no application that defines pipeline {name!r} is loaded. "
            "Name it (`--app APP`, RETOMA_APP or retoma.toml), or use a server that serves it (`retoma serve APP`)"
        )
    if step not in pipeline.steps:
        raise InvalidInput(
            f"a result of {step!r} cannot be checked here: pipeline {name!r} no longer has a step {step!r}. Use the "
            "version of the application that defines it"
        )
    return pipeline.validate_result(step, text)
