"""Clickable URLs of `retoma dev`, with the token of this start."""

from __future__ import annotations

import re
from dataclasses import dataclass

from retoma.server.dev_auth import TOKEN_PARAMETER

_STOPS = '.,;:!)"”'  # punctuation that may follow a URL in a sentence


@dataclass(frozen=True)
class DevLinks:
    """Add the token to URLs. `address` is the URL of the server, without a path."""

    address: str
    token: str

    def add_token(self, text: str) -> str:
        """Return the text with the token in every URL of this server that has a path and no query."""
        path = rf"/(?:[^\s?#]*[^\s?#{_STOPS}])?(?=[\s{_STOPS}]|$)"
        return re.sub(re.escape(self.address) + path, rf"\g<0>?{TOKEN_PARAMETER}={self.token}", text)
