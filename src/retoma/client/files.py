"""`client.files`: the files of a run, and signed links to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from retoma.client.core import Namespace
from retoma.define.file import File, find_files
from retoma.errors import Gone, NotFound
from retoma.file_links import LINK_LIFETIME, LINK_PURPOSE, build_link_query, generate_link_secret, is_signature_valid
from retoma.records import Run
from retoma.store import deliveries, runs

MAX_FILE_MENTIONS = 20  # rows of a run's data that are searched for a file


class Files(Namespace):
    _link_secret: str | None = None

    async def get(self, run: UUID, digest: str) -> File:
        """Return the file with this digest, as the run's data refers to it. Raise NotFound if it does not."""
        values = await runs.find_data_with_text(self._database, run, digest, MAX_FILE_MENTIONS)
        for file in find_files(values):
            if file.file == digest:
                return file
        raise NotFound(f"run {run} has no file {digest}")

    async def sign_links(self, run: UUID, *, lifetime: timedelta = LINK_LIFETIME) -> Callable[[File], str]:
        """Return a function that signs links: it returns the query that makes a file of the run public for `lifetime`.

        Append it to the URL of the file. Whether the run has the file is checked when the link is used.
        """
        secret, expires_at = await self._get_link_secret(), await self._core.now() + lifetime
        return lambda file: build_link_query(secret, run, file.file, expires_at)

    async def check_link(self, run: UUID, digest: str, expires: int, signature: str) -> None:
        """Raise NotFound unless the signature is valid, and Gone if the link has expired."""
        if not is_signature_valid(await self._get_link_secret(), run, digest, expires, signature):
            raise NotFound("there is no such file, or the signature of this link is not valid")
        if expires <= (await self._core.now()).timestamp():
            raise Gone("this link has expired: request a new one")

    async def _get_link_secret(self) -> str:
        if self._link_secret is None:
            self._link_secret = await deliveries.get_or_create_signing_key(
                self._database, LINK_PURPOSE, generate_link_secret()
            )
        return self._link_secret

    async def list(self, run: Run, *, limit: int = 100) -> list[File]:
        """Return the files that the run's input and the results of its steps refer to, except those of single items."""
        values = await runs.find_data_with_text(self._database, run.id, '"file"', limit, of_items=False)
        files: dict[File, None] = {}
        for file in find_files([run.input, *values]):
            files[file] = None
            if len(files) == limit:
                break
        return list(files)
