"""Limits of JSON that are checked before it is parsed, in one pass over the body as it arrives."""

from __future__ import annotations

from itertools import accumulate

from retoma.server.problems import Problem

MAX_JSON_DEPTH = 64
MAX_JSON_BRACKETS = 100_000
SLICE_BYTES = 16 * 1024  # bytes that are looked at together: a body beyond a limit is refused early
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_TO_SQUARE_BRACKETS = bytes.maketrans(b"{}", b"[]")
_DEPTH_CHANGE = {ord("["): 1, ord("]"): -1}


def check_json_limits(body: bytes) -> None:
    """Raise a Problem if this JSON is nested too deeply, has too many parts, or bytes that no JSON has."""
    JsonLimits().feed(body)


class JsonLimits:
    """Counts the brackets outside of strings, part by part. The work for each byte is the same for any body."""

    def __init__(self) -> None:
        self._bracket_count = 0
        self._depth = 0
        self._in_string = False
        self._escape = b""  # a backslash at the end of the last part

    def feed(self, part: bytes) -> None:
        """Raise a Problem as soon as the body so far is beyond a limit."""
        for start in range(0, len(part), SLICE_BYTES):
            self._feed_slice(part[start : start + SLICE_BYTES])

    def _feed_slice(self, part: bytes) -> None:
        if b"\0" in part:
            raise Problem(400, "BAD_REQUEST", "the body is not JSON in UTF-8")
        brackets = self._brackets_outside_strings(part)
        self._bracket_count += brackets.count(b"[")
        if self._bracket_count > MAX_JSON_DEPTH:
            deepest = max(accumulate(map(_DEPTH_CHANGE.__getitem__, brackets), initial=self._depth))
            if deepest > MAX_JSON_DEPTH:
                raise Problem(400, "TOO_DEEP", f"the body is nested more than {MAX_JSON_DEPTH} levels deep")
        if self._bracket_count > MAX_JSON_BRACKETS:
            raise Problem(400, "TOO_MANY_PARTS", f"the body has more than {MAX_JSON_BRACKETS:,} arrays and objects")
        self._depth += 2 * brackets.count(b"[") - len(brackets)

    def _brackets_outside_strings(self, part: bytes) -> bytes:
        """Return all brackets that are not in a string, as square ones."""
        unescaped = (self._escape + part).replace(rb"\\", b"")
        self._escape = b"\\" if unescaped.endswith(b"\\") else b""
        quoted = unescaped.replace(rb"\"", b"").translate(_TO_SQUARE_BRACKETS, _NO_BRACKETS)
        # Two adjacent quotes end a string and begin one: their neighbours stay inside or outside.
        parts = quoted.replace(b'""', b"").split(b'"')
        outside = parts[self._in_string :: 2]
        self._in_string ^= len(parts) % 2 == 0
        return b"".join(outside)
