"""What calls to paid providers are expected to cost in US dollars, so that budgets are checked before them.

They are rounded up: what a provider has charged replaces them as soon as it is known.
"""

from __future__ import annotations

from decimal import Decimal

ANSWER = Decimal("0.05")
"""An answer of a language model, with a second try."""
SHORT_ANSWER = Decimal("0.01")
"""The same, of a few sentences."""
IMAGE = Decimal("0.02")
KEYWORDS = Decimal("0.10")
