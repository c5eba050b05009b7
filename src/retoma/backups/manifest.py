"""The manifest of a backup: what it contains, of which release, and with which checksums."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from retoma.define.codec import describe_validation_error
from retoma.errors import BackupFailed
from retoma.files import KEY, get_digest

FORMAT = 1
MANIFEST, DATABASE, FILE_LIST, FILES = "manifest.json", "database.dump", "files.jsonl", "files/"
MAX_BYTES = 16 << 20  # of a manifest

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: Count
    sha256: Sha256


class Files(BaseModel):
    """Where the files were, and whether the backup has them. `missing` are files that rows name and that did not exist.

    `count` and `bytes` are those of the files in the backup.
    """

    model_config = ConfigDict(frozen=True)

    stored_in: Literal["folder", "bucket"]
    location: str
    copied: bool
    count: Count = 0
    bytes: Count = 0
    missing: tuple[Sha256, ...] = ()


class Manifest(BaseModel):
    """`taken_at` is the time of the snapshot by the database's clock. `tables` has the number of rows of each table."""

    model_config = ConfigDict(frozen=True)

    format: int
    id: UUID
    retoma: str
    schema_number: Count
    taken_at: datetime
    server_version: str
    tables: dict[str, Count]
    files: Files
    database: Part
    file_list: Part


class FileEntry(BaseModel):
    """A line of the list of files: the key in the file store, and the content, which is in `files/SHA256`."""

    model_config = ConfigDict(frozen=True)

    key: str
    sha256: Sha256
    size: Count

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str) -> str:
        if not KEY.fullmatch(key):
            raise ValueError("not a key of the file store")
        return key

    @property
    def name(self) -> str:
        """Return the name of the content in the backup."""
        return f"{FILES}{self.sha256}"


def parse_manifest(text: bytes) -> Manifest:
    """Raise BackupFailed if this is not a manifest that this release understands."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BackupFailed(f"{MANIFEST} is not that of a backup: {describe_validation_error(error)}") from None
    if manifest.format != FORMAT:
        raise BackupFailed(
            f"the backup has format {manifest.format}, and this release reads format {FORMAT}: use Retoma "
            f"{manifest.retoma}, which wrote it"
        )
    return manifest


def parse_entry(line: bytes) -> FileEntry:
    """Raise BackupFailed if the line cannot be one that `retoma backup` has written."""
    try:
        entry = FileEntry.model_validate_json(line)
    except ValidationError as error:
        raise BackupFailed(f"{FILE_LIST} is invalid: {describe_validation_error(error)}") from None
    digest = get_digest(entry.key)
    if digest is not None and digest != entry.sha256:
        raise BackupFailed(f"{FILE_LIST} is invalid: the content of {entry.key} has the digest {entry.sha256}")
    return entry
