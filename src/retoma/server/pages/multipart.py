"""Parse forms with files, `multipart/form-data` (RFC 7578), as browsers send them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from retoma.server.problems import Problem

MEDIA_TYPE = "multipart/form-data"
_BOUNDARY = re.compile(r';\s*boundary="?([^";,]{1,70})"?')
_PARAMETER = re.compile(r';\s*(name|filename)="([^"]*)"')
# Browsers escape these characters in names.
_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}


@dataclass(frozen=True)
class UploadedFile:
    """A file of a form. `name` is what its owner calls it: text to show, never a path."""

    name: str
    content: bytes


@dataclass(frozen=True)
class MultipartForm:
    fields: list[tuple[str, str]]
    files: dict[str, UploadedFile]


def parse_multipart(content_type: str, body: bytes, max_parts: int) -> MultipartForm:
    """Return the fields and the files of a form. A file input without a file is left out. Raise a Problem."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise Problem(400, "BAD_REQUEST", "the form has no boundary")
    delimiter = b"\r\n--" + boundary[1].encode()
    _, *parts = (b"\r\n" + body).split(delimiter, max_parts + 2)
    if len(parts) > max_parts + 1:
        raise Problem(413, "FORM_TOO_LARGE", f"the form has more than {max_parts:,} fields")
    form = MultipartForm([], {})
    for part in parts[:-1]:  # the last one ends the form
        _add_part(form, part)
    if not parts or not parts[-1].startswith(b"--"):
        raise Problem(400, "BAD_REQUEST", "the form is incomplete")
    return form


def _add_part(form: MultipartForm, part: bytes) -> None:
    head, _, content = part.partition(b"\r\n\r\n")
    parameters = _parse_disposition(head.decode(errors="replace"))
    name = parameters.get("name", "")
    if "filename" not in parameters:
        form.fields.append((name, content.decode(errors="replace")))
    elif parameters["filename"]:
        form.files[name] = UploadedFile(parameters["filename"], content)


def _parse_disposition(head: str) -> dict[str, str]:
    line = next((each for each in head.splitlines() if each.lower().startswith("content-disposition:")), "")
    return {name: _unescape(value) for name, value in _PARAMETER.findall(line)}


def _unescape(value: str) -> str:
    for escape, character in _ESCAPES.items():
        value = value.replace(escape, character)
    return value
