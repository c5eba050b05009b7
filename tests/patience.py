"""How long tests wait for what must happen: long, as machines differ, unless it is planted that it never does."""

from __future__ import annotations

import os

PATIENCE = float(os.environ.get("TEST_PATIENCE", "60"))  # seconds
