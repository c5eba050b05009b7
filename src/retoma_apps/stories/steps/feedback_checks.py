"""Refuse feedback: people rerun single scenes instead.

Only stories from before their review had `send_back_to=None` can still be sent back.
"""

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
