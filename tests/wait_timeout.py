"""How long tests wait for an expected event: long, as machines differ, except for planted bugs that prevent it."""

from __future__ import annotations

import os

WAIT_TIMEOUT = float(os.environ.get("TEST_WAIT_TIMEOUT", "60"))  # seconds
