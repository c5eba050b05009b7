"""Limit the depth and size of JSON before it is parsed, in one pass over the body as it arrives."""

from __future__ import annotations

import re
from itertools import accumulate

from retoma.server.problems import Problem

MAX_JSON_DEPTH = 64
MAX_JSON_BRACKETS = 100_000
SLICE_BYTES = 16 * 1024  # bytes checked at a time: a body beyond a limit is rejected early
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_TO_SQUARE_BRACKETS = bytes.maketrans(b"{}", b"[]")
_DEPTH_CHANGE = {ord("["): 1, ord("]"): -1}
_SURROGATE_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")  # escaped, or in bytes that are not valid UTF-8


def check_json_limits(body: bytes) -> None:
    """Raise a Problem if this JSON is nested too deeply, has too many arrays and objects, or contains NUL bytes."""
    JsonLimits().feed(body)


def check_surrogates(body: bytes) -> None:
    """Raise a Problem if this JSON contains an unpaired surrogate, which is not text: it cannot be stored or shown."""
    if b"\\u" not in body and b"\xed" not in body:
        return
    if _SURROGATE.search(_SURROGATE_PAIR.sub(b"", body.replace(rb"\\", b" "))):
        raise Problem(422, "INVALID_REQUEST", "the body contains an unpaired surrogate, such as \\ud800: send text")


class JsonLimits:
    """Count the brackets outside of strings, chunk by chunk. The cost per byte is the same for any body."""

    def __init__(self) -> None:
        self._bracket_count = 0
        self._depth = 0
        self._in_string = False
        self._escape = b""  # a backslash at the end of the last chunk

    def feed(self, chunk: bytes) -> None:
        """Raise a Problem as soon as the body exceeds a limit."""
        for start in range(0, len(chunk), SLICE_BYTES):
            self._feed_slice(chunk[start : start + SLICE_BYTES])

    def _feed_slice(self, chunk: bytes) -> None:
        if b"\0" in chunk:
            raise Problem(400, "BAD_REQUEST", "the body is not valid JSON in UTF-8")
        brackets = self._brackets_outside_strings(chunk)
        self._bracket_count += brackets.count(b"[")
        if self._bracket_count > MAX_JSON_DEPTH:
            deepest = max(accumulate(map(_DEPTH_CHANGE.__getitem__, brackets), initial=self._depth))
            if deepest > MAX_JSON_DEPTH:
                raise Problem(400, "TOO_DEEP", f"the body is nested more than {MAX_JSON_DEPTH} levels deep")
        if self._bracket_count > MAX_JSON_BRACKETS:
            raise Problem(400, "TOO_MANY_PARTS", f"the body has more than {MAX_JSON_BRACKETS:,} arrays and objects")
        self._depth += 2 * brackets.count(b"[") - len(brackets)

    def _brackets_outside_strings(self, chunk: bytes) -> bytes:
        """Return all brackets outside of strings, braces replaced by square brackets."""
        unescaped = (self._escape + chunk).replace(rb"\\", b"")
        self._escape = b"\\" if unescaped.endswith(b"\\") else b""
        quoted = unescaped.replace(rb"\"", b"").translate(_TO_SQUARE_BRACKETS, _NO_BRACKETS)
        # Two adjacent quotes end a string and start another, so they change nothing for their neighbours.
        parts = quoted.replace(b'""', b"").split(b'"')
        outside = parts[self._in_string :: 2]
        self._in_string ^= len(parts) % 2 == 0
        return b"".join(outside)
