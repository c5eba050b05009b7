"""The input of a run that follows the rejection of another run."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class Rejection(BaseModel):
    """A run that was rejected, its input, and the decision.

    `step` is the review, or the step that asked for one. `by` is the person, None if the review expired.
    """

    model_config = ConfigDict(frozen=True)

    run: UUID
    run_input: Any
    step: str
    by: str | None
    notes: str
