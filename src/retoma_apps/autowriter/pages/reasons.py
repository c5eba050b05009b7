"""Reasons that reviewers of an article can choose instead of writing them. Each is one that the step can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retoma.translations import N_
from retoma_apps.autowriter.services import FollowsNotes

_VERSION = (N_("Another version"),)
_PICTURES = (N_("Other pictures"),)
_LENGTH = (N_("Shorter"), N_("Longer"))
_FACTS = (N_("Check the facts"),)
_TONE = (N_("A more natural tone"), N_("Simpler words"))
_KEYWORD = (N_("Use the focus keyword"),)
_ORDER = (N_("Another order of the sections"),)
_READER = (N_("Write for this audience"),)
_MOTIF = (N_("Another motif"), N_("Without text in the picture"))


def list_review_reasons(follows: FollowsNotes) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the reasons by review and step. Without a model, only those that this machine can follow."""
    text = {
        "content_created": (*_LENGTH, *_FACTS, *_TONE),
        "title_slug_created": (*_LENGTH, *_KEYWORD),
        "meta_created": (*_LENGTH, *_KEYWORD),
        "headings_created": (*_TONE, *_KEYWORD),
        "outline_created": _ORDER,
        "brief_created": _READER,
    }
    versions = {"content_created": _VERSION, "title_slug_created": _VERSION}
    pictures = (*_PICTURES, *(_MOTIF if follows.images else ()))
    return {
        "quality_gate_passed": text if follows.text else versions,
        "image_review": {"images_resolved": pictures},
    }
