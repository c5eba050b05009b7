"""Limits of JSON that are checked before it is parsed, in one pass over the body as it arrives."""

from __future__ import annotations

from itertools import accumulate

from retoma.server.problems import Problem

DEEPEST_JSON = 64
MOST_BRACKETS = 100_000
LARGEST_SLICE = 16 * 1024  # bytes that are looked at together: a body beyond a limit is refused early
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_STEP = {ord("["): 1, ord("]"): -1}


def check_json(body: bytes) -> None:
    """Raise a Problem if this JSON is nested too deeply, has too many parts, or bytes that no JSON has."""
    JsonShape().feed(body)


class JsonShape:
    """Counts the brackets outside of strings, part by part. The work for each byte is the same for any body."""

    def __init__(self) -> None:
        self._opened = 0
        self._depth = 0
        self._in_string = False
        self._escape = b""  # a backslash at the end of the last part

    def feed(self, part: bytes) -> None:
        """Raise a Problem as soon as the body so far is beyond a limit."""
        for start in range(0, len(part), LARGEST_SLICE):
            self._feed(part[start : start + LARGEST_SLICE])

    def _feed(self, part: bytes) -> None:
        if b"\0" in part:
            raise Problem(400, "BAD_REQUEST", "the body is not JSON in UTF-8")
        brackets = self._outside_strings(part)
        self._opened += brackets.count(b"[")
        if self._opened > DEEPEST_JSON:
            deepest = max(accumulate(map(_STEP.__getitem__, brackets), initial=self._depth))
            if deepest > DEEPEST_JSON:
                raise Problem(400, "TOO_DEEP", f"the body is nested more than {DEEPEST_JSON} levels deep")
        if self._opened > MOST_BRACKETS:
            raise Problem(400, "TOO_MANY_PARTS", f"the body has more than {MOST_BRACKETS:,} arrays and objects")
        self._depth += 2 * brackets.count(b"[") - len(brackets)

    def _outside_strings(self, part: bytes) -> bytes:
        """Return all brackets that are not in a string, as square ones."""
        unescaped = (self._escape + part).replace(rb"\\", b"")
        self._escape = b"\\" if unescaped.endswith(b"\\") else b""
        quoted = unescaped.replace(rb"\"", b"").translate(_SQUARE, _NO_BRACKETS)
        # Two adjacent quotes end a string and begin one: their neighbours stay inside or outside.
        parts = quoted.replace(b'""', b"").split(b'"')
        outside = parts[self._in_string :: 2]
        self._in_string ^= len(parts) % 2 == 0
        return b"".join(outside)
