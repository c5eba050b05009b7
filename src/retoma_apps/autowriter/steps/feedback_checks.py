"""Check which feedback each part of an article can follow, before it is sent back with it."""

from __future__ import annotations

import re

from retoma.reviews import Feedback
from retoma.translations import N_
from retoma_apps.autowriter.services import FollowsNotes
from retoma_apps.providers import images, llm
from retoma_apps.providers.feedback import refuse_feedback

_ANOTHER = re.compile(
    r"\W*(?:(?:an)?other|outr[ao]s?) (?:(?:version|picture|image)s?|versão|versões|imagem|imagens)\W*", re.IGNORECASE
)
_FIXED = N_(
    "“%(notes)s” is not supported: without a language model, this part would be the same again: accept or reject the "
    "article, or set %(variables)s"
)
_VARIANTS = N_(
    "“%(notes)s” is not supported: without a language model, this part can only have another of a few versions: write "
    "“another version”; for anything else set %(variables)s"
)
_IMAGES = N_(
    "“%(notes)s” is not supported: without an image model, images can only have other shapes: write “other pictures”; "
    "for anything else set %(variables)s"
)


def check_fixed_text_feedback(feedback: Feedback, *, follows_notes: FollowsNotes) -> None:
    """Raise FeedbackNotSupported for a part of which the offline writer has one version."""
    if not follows_notes.text:
        raise refuse_feedback(feedback, _FIXED, llm.PROVIDERS)


def check_text_feedback(feedback: Feedback, *, follows_notes: FollowsNotes) -> None:
    """Raise FeedbackNotSupported for a part of which the offline writer has versions, but follows no notes."""
    if not follows_notes.text and not _ANOTHER.fullmatch(feedback.text):
        raise refuse_feedback(feedback, _VARIANTS, llm.PROVIDERS)


def check_image_feedback(feedback: Feedback, *, follows_notes: FollowsNotes) -> None:
    """Raise FeedbackNotSupported if shapes are drawn and the notes ask for more than others. They may be empty."""
    is_redraw = not feedback.text or _ANOTHER.fullmatch(feedback.text)
    if not is_redraw and not follows_notes.images:
        raise refuse_feedback(feedback, _IMAGES, images.PROVIDERS)
