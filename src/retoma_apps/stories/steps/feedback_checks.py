"""Which feedback the steps before the review can follow: none, as people rerun single scenes instead."""

from __future__ import annotations

from retoma.errors import FeedbackNotSupported
from retoma.reviews import Feedback
from retoma.translations import N_


def refuse_feedback(feedback: Feedback) -> None:
    raise FeedbackNotSupported(
        N_(
            "This step does not follow notes. Rerun single scenes on the story's page, or edit the title, the "
            "description and the tags when you publish."
        )
    )
