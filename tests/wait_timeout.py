"""How long tests wait for what must happen: long, as machines differ, unless it is planted that it never does."""

from __future__ import annotations

import os

WAIT_TIMEOUT = float(os.environ.get("TEST_WAIT_TIMEOUT", "60"))  # seconds
