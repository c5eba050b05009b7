"""Links to files that need no key."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from retoma.client.base import Base
from retoma.define.file import File
from retoma.errors import Gone, NotFound
from retoma.links import LIFETIME, PURPOSE, is_signed, new_link_secret, signed_path
from retoma.store import deliveries


class Links(Base):
    _link_secret: str | None = None

    async def file_links(self, run: UUID, files: Iterable[File], *, lifetime: timedelta = LIFETIME) -> dict[File, str]:
        """Return for each file the path of a link that serves it to anybody until `lifetime` is over.

        The run must name the files: that is checked when a link is used.
        """
        secret, expires_at = await self._secret_of_links(), await self.now() + lifetime
        return {file: signed_path(secret, run, file.file, file.name, expires_at) for file in files}

    async def check_file_link(self, run: UUID, digest: str, expires: int, signature: str) -> None:
        """Raise NotFound unless we have signed this link, and Gone if its time is over."""
        if not is_signed(await self._secret_of_links(), run, digest, expires, signature):
            raise NotFound("there is no such file, or this link to it is not one of ours")
        if expires <= (await self.now()).timestamp():
            raise Gone("this link has expired: ask for a new one where you got it")

    async def _secret_of_links(self) -> str:
        if self._link_secret is None:
            self._link_secret = await deliveries.signing_key(self.database, PURPOSE, new_link_secret())
        return self._link_secret
