"""A reference to a file in the data of runs, by the digest of its content. The bytes are in the file store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class File(BaseModel):
    """`file` is the SHA-256 of the content; `name` is a label and never a path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    name: Annotated[str, Field(max_length=500)] = ""
    size: Annotated[int, Field(ge=0)] = 0
    media_type: Annotated[str, Field(max_length=100)] = "application/octet-stream"


def is_file(value: Any) -> bool:
    """Return whether this JSON value is a reference to a file."""
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return False
    try:
        File.model_validate(value)
    except ValidationError:
        return False
    return True


def find_files(value: Any) -> Iterator[File]:
    """Yield every file reference in a JSON value, at any depth."""
    if is_file(value):
        yield File.model_validate(value)
        return
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from find_files(each)
