"""Links to files that need no key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from retoma.client.base import Base
from retoma.define.file import File
from retoma.errors import Gone, NotFound
from retoma.file_links import LINK_LIFETIME, LINK_PURPOSE, build_link_query, generate_link_secret, is_signature_valid
from retoma.store import deliveries


class Links(Base):
    _link_secret: str | None = None

    async def sign_file_links(self, run: UUID, *, lifetime: timedelta = LINK_LIFETIME) -> Callable[[File], str]:
        """Return a function that gives for a file of the run the query that serves it to anybody for `lifetime`.

        Append it to the address of the file. That the run names the file is checked when the link is used.
        """
        secret, expires_at = await self._get_link_secret(), await self.now() + lifetime
        return lambda file: build_link_query(secret, run, file.file, expires_at)

    async def check_file_link(self, run: UUID, digest: str, expires: int, signature: str) -> None:
        """Raise NotFound unless we have signed this link, and Gone if its time is over."""
        if not is_signature_valid(await self._get_link_secret(), run, digest, expires, signature):
            raise NotFound("there is no such file, or this link to it is not one of ours")
        if expires <= (await self.now()).timestamp():
            raise Gone("this link has expired: ask for a new one where you got it")

    async def _get_link_secret(self) -> str:
        if self._link_secret is None:
            self._link_secret = await deliveries.get_or_create_signing_key(
                self.database, LINK_PURPOSE, generate_link_secret()
            )
        return self._link_secret
