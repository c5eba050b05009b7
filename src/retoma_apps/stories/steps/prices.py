"""What providers charge for the parts of a story."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

PRICES: Mapping[str, Decimal] = {"generate_image": Decimal("0.02"), "generate_audio": Decimal("0.0013")}
"""US dollars for a job of this type: one image, and the voice of one scene."""
