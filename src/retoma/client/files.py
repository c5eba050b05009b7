"""`client.files`: the files of a run, and signed links to them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from retoma.client.core import Namespace
from retoma.define.file import File, find_files
from retoma.errors import Gone, NotFound
from retoma.file_links import LINK_LIFETIME, LINK_PURPOSE, build_link_query, generate_link_secret, is_signature_valid
from retoma.records import Run
from retoma.store import deliveries, runs
from retoma.store.tenant_files import grant_files, list_foreign_files

MAX_FILE_MENTIONS = 20  # rows of a run's data that are searched for a file


class Files(Namespace):
    async def save(
        self,
        content: bytes | Path | AsyncIterable[bytes],
        *,
        tenant: str | None,
        name: str = "",
        max_bytes: int | None = None,
    ) -> File:
        """Store content in the application's file store, and let this tenant name it in its data.

        Without a tenant, all tenants that this client is limited to can name it; if it is not limited, only callers
        with access to all tenants can pass the file on to one. Raise TooLarge if it has more than `max_bytes`.
        """
        store = self._core.app.files if self._core.app else None
        if store is None:
            raise NotFound("this application has no file store: set App(files=...)")
        saved = await store.save(content, name=name, max_bytes=max_bytes)
        owners = await self._core.find_tenants() if tenant is None else [await self._core.get_or_create_tenant(tenant)]
        for owner in owners or ():
            await grant_files(self._database, owner, [saved.file])
        return saved

    async def get(self, run: UUID, digest: str) -> File:
        """Return the file with this digest, as the run's data refers to it. Raise NotFound if it does not."""
        await self._core.check_run(run)
        values = await runs.find_data_with_text(self._database, run, digest, MAX_FILE_MENTIONS)
        for file in find_files(values):
            if file.file == digest:
                return file
        raise NotFound(f"run {run} has no file {digest}")

    async def list_foreign(self, files: Iterable[File]) -> list[str]:
        """Return the digests of those files that the caller may not name, because they are of other tenants."""
        tenants, foreign = await self._core.find_tenants(), [file.file for file in files]
        for tenant in tenants or ():
            foreign = await list_foreign_files(self._database, tenant, foreign)
        return [] if tenants is None else foreign

    async def sign_links(self, run: UUID, *, lifetime: timedelta = LINK_LIFETIME) -> Callable[[File], str]:
        """Return a function that signs links: it returns the query that makes a file of the run public for `lifetime`.

        Append it to the URL of the file. Whether the run has the file is checked when the link is used.
        """
        await self._core.check_run(run)
        secret, expires_at = await self._get_link_secret(), await self._core.now() + lifetime
        return lambda file: build_link_query(secret, run, file.file, expires_at)

    async def check_link(self, run: UUID, digest: str, expires: int, signature: str) -> None:
        """Raise NotFound unless the signature is valid, and Gone if the link has expired."""
        if not is_signature_valid(await self._get_link_secret(), run, digest, expires, signature):
            raise NotFound("there is no such file, or the signature of this link is not valid")
        if expires <= (await self._core.now()).timestamp():
            raise Gone("this link has expired: request a new one")

    async def _get_link_secret(self) -> str:
        known = self._core.link_secrets
        if LINK_PURPOSE not in known:
            known[LINK_PURPOSE] = await deliveries.get_or_create_signing_key(
                self._database, LINK_PURPOSE, generate_link_secret()
            )
        return known[LINK_PURPOSE]

    async def list(self, run: Run, *, limit: int = 100) -> list[File]:
        """Return the files that the run's input and the results of its steps refer to, except those of single items."""
        await self._core.check_run(run.id)
        values = await runs.find_data_with_text(self._database, run.id, '"file"', limit, of_items=False)
        files: dict[File, None] = {}
        for file in find_files([run.input, *values]):
            files[file] = None
            if len(files) == limit:
                break
        return list(files)
