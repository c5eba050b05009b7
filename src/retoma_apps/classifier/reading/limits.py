"""How much of a stranger's file is looked at."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What is above `bytes`, `pages`, `pixels`, `unpacked`, `ratio`, `members` or `files` is refused as FILE_TOO_LARGE.

    `members` are all entries of a zip, and `files` those of a batch without folders and leftovers.

    Reading ends, without an error, after `characters` of text, which is few enough for a step's result in any script;
    of a document's scanned pages `ocr_pages` are read.
    """

    bytes: int = 50 * MEGABYTE
    pages: int = 2_000
    pixels: int = 40_000_000
    unpacked: int = 100 * MEGABYTE
    ratio: int = 200
    members: int = 2_000
    files: int = 2_000
    characters: int = 80_000
    ocr_pages: int = 20
