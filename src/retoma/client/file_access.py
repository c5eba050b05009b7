"""Which files a caller may name in data: the digest of a file alone gives no access to its content."""

from __future__ import annotations

import re
from uuid import UUID

from retoma.client.core import Core
from retoma.errors import InvalidInput
from retoma.store import runs
from retoma.store.tenant_files import grant_files, list_foreign_files

_REFERENCE = re.compile(r'"file": ?"([0-9a-f]{64})"')


async def admit_files(core: Core, tenant: str, *texts: str, run: UUID | None = None) -> None:
    """Let a tenant use the files that this JSON refers to.

    If the caller is limited to some tenants, raise InvalidInput unless the tenant may already name all of them, or the
    data of this `run` refers to them.
    """
    digests = {digest for text in texts for digest in _REFERENCE.findall(text)}
    if not digests:
        return
    if core.limit is None:
        await grant_files(core.database, await core.tenants.get_or_create_id(tenant), digests)
        return
    owner = await core.get_or_create_tenant(tenant)
    for digest in await list_foreign_files(core.database, owner, digests):
        if run is None or not await runs.find_data_with_text(core.database, run, f'"{digest}"', 1):
            raise InvalidInput(f"there is no file {digest} of {tenant!r}: upload its content first")
