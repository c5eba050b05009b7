"""The titles of runs that are started. A title that cannot be made never keeps a run from starting."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from retoma.define.pipeline import Pipeline
from retoma.logs import get_logger

log = get_logger(__name__)


def make_title(pipeline: Pipeline, inputs: BaseModel | None) -> str | None:
    """Return the title of a run with these inputs, or None, with a warning, if it cannot be made."""
    if not pipeline.has_title:
        return None
    (title,) = make_titles(pipeline, [inputs])
    return title


def make_titles(pipeline: Pipeline, all_inputs: Sequence[BaseModel | None]) -> list[str | None]:
    """Do the same for many runs. Log one warning for all of them."""
    if not pipeline.has_title:
        return [None] * len(all_inputs)
    titles: list[str | None] = []
    errors: list[Exception] = []
    for inputs in all_inputs:
        try:
            titles.append(pipeline.format_title(inputs))
        except Exception as error:  # noqa: BLE001  (an application's function may raise anything)
            titles.append(None)
            errors.append(error)
    if errors:
        log.warning(
            "title_failed",
            message="the pipeline's title function failed; the runs have no title",
            pipeline=pipeline.name,
            runs=len(errors),
            error=errors[0],
        )
    return titles
