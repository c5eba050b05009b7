"""What the paid steps of a video are expected to cost in US dollars, so that a budget is checked before them.

They are rounded up: what a provider has charged replaces them as soon as it is known.
"""

from __future__ import annotations

from decimal import Decimal

from retoma_apps.media.models import MOST_THUMBNAILS
from retoma_apps.providers.estimates import ANSWER, IMAGE
from retoma_apps.videos.models import Script

WRITING = ANSWER
THUMBNAILS = MOST_THUMBNAILS * IMAGE
_CHARACTER = Decimal("0.000016")  # of a neural voice


def estimate_narration(script_review: Script) -> Decimal:
    return len(script_review.text) * _CHARACTER
