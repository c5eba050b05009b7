"""A file, as the data of runs names it: by the digest of its content. Its bytes are in the store of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class File(BaseModel):
    """`file` is the SHA-256 of the content; `name` is what somebody called it, a label and never a path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    name: Annotated[str, Field(max_length=500)] = ""
    size: Annotated[int, Field(ge=0)] = 0
    media_type: Annotated[str, Field(max_length=100)] = "application/octet-stream"


def is_file(value: Any) -> bool:
    """Whether this JSON names a file."""
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return False
    try:
        File.model_validate(value)
    except ValidationError:
        return False
    return True


def find_files(value: Any) -> Iterator[File]:
    """Every file that JSON names, wherever in it."""
    if is_file(value):
        yield File.model_validate(value)
        return
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from find_files(each)
