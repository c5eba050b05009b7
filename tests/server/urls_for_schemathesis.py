"""The URLs and time zones that schemathesis considers valid: those that the server accepts.

Others are tested elsewhere.
"""

from __future__ import annotations

import schemathesis
from hypothesis import strategies

schemathesis.openapi.format(
    "uri", strategies.from_regex(r"https://[a-z]{1,20}\.example(/[a-z0-9]{0,20}){0,3}", fullmatch=True)
)
schemathesis.openapi.format("time-zone", strategies.sampled_from(["UTC", "America/Sao_Paulo", "Europe/Lisbon"]))
