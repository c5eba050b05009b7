"""`client.files`: the files of a run, and links to them that need no key."""

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

MAX_FILE_MENTIONS = 20  # of a file in the data of a run


class Files(Namespace):
    _link_secret: str | None = None

    async def get(self, run: UUID, digest: str) -> File:
        """The file of this content, as the data of the run names it. Raises NotFound if it does not."""
        said = await runs.find_data_with_text(self._database, run, digest, MAX_FILE_MENTIONS)
        for file in find_files(said):
            if file.file == digest:
                return file
        raise NotFound(f"run {run} names no file {digest}")

    async def sign_links(self, run: UUID, *, lifetime: timedelta = LINK_LIFETIME) -> Callable[[File], str]:
        """Return a function that gives for a file of the run the query that serves it to anybody for `lifetime`.

        Append it to the address of the file. That the run names the file is checked when the link is used.
        """
        secret, expires_at = await self._get_link_secret(), await self._core.now() + lifetime
        return lambda file: build_link_query(secret, run, file.file, expires_at)

    async def check_link(self, run: UUID, digest: str, expires: int, signature: str) -> None:
        """Raise NotFound unless we have signed this link, and Gone if its time is over."""
        if not is_signature_valid(await self._get_link_secret(), run, digest, expires, signature):
            raise NotFound("there is no such file, or this link to it is not one of ours")
        if expires <= (await self._core.now()).timestamp():
            raise Gone("this link has expired: ask for a new one where you got it")

    async def _get_link_secret(self) -> str:
        if self._link_secret is None:
            self._link_secret = await deliveries.get_or_create_signing_key(
                self._database, LINK_PURPOSE, generate_link_secret()
            )
        return self._link_secret

    async def list(self, run: Run, *, limit: int = 100) -> list[File]:
        """Files that the run's input and the results of its steps name, but for those of single items."""
        said = await runs.find_data_with_text(self._database, run.id, '"file"', limit, of_items=False)
        found: dict[File, None] = {}
        for file in find_files([run.input, *said]):
            found[file] = None
            if len(found) == limit:
                break
        return list(found)
