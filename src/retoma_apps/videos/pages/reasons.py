"""Reasons that reviewers of a video can choose instead of writing them. Each is one that the step can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retoma.translations import N_
from retoma_apps.videos.services import Services

_LENGTH = (N_("Shorter"), N_("Longer"))
_WRITING = (
    N_("Check the facts"),
    N_("A livelier pace"),
    N_("A more natural tone"),
    N_("A stronger opening"),
    N_("Better pictures for the scenes"),
)
_SPEECH = (N_("Faster"), N_("Slower"))
_FOOTAGE = (N_("Other clips"),)
_FILM = (N_("Without subtitles"), N_("With subtitles"))
_THUMBNAILS = (N_("Other pictures"),)
_PICTURES = (N_("Larger letters"), N_("More contrast"), N_("A simpler picture"))


def list_review_reasons(services: Services) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the reasons by review and step. Without a model, only those that this machine can follow."""
    script = (*_LENGTH, *(_WRITING if services.writer.follows_notes else ()))
    thumbnails = (*_THUMBNAILS, *(_PICTURES if services.images.follows_notes else ()))
    return {
        "script_review": {"script_generation": script, "research": script},
        "audio_review": {"audio_generation": _SPEECH},
        "broll_review": {"broll_search": _FOOTAGE},
        "final_review": {
            "video_assembly": _FILM,
            "thumbnail_gen": thumbnails,
            "broll_search": _FOOTAGE,
            "audio_generation": _SPEECH,
            "script_generation": script,
        },
    }
