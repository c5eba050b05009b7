"""Limits for reading untrusted files."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Files over `bytes`, `pages`, `pixels`, `unpacked`, `ratio`, `members` or `files` are rejected as FILE_TOO_LARGE.

    `members` counts all entries of a zip; `files` counts those of a batch without folders and system files.

    Reading stops without an error after `characters` of text, which fit a step's result in any script. Of the scanned
    pages of a document, `ocr_pages` are read.
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
