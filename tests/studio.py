"""A service for tests of connections: it accepts every key that does not begin with `wrong`."""

from __future__ import annotations

from collections.abc import Mapping

from retoma.connections import ConnectionField, ConnectionType
from retoma.errors import ProviderRejected


async def check(values: Mapping[str, str]) -> str:
    if values.get("api_key", "").startswith("wrong"):
        raise ProviderRejected(f"the key {values['api_key']} was rejected: enter another one")
    return f"reached {values.get('base_url', 'the default address')}"


STUDIO = ConnectionType(
    "studio",
    "Studio",
    (
        ConnectionField("api_key", "API key", "secret"),
        ConnectionField("base_url", "Address", "url", required=False),
        ConnectionField("voice", "Voice", required=False),
    ),
    check,
    variables=("STUDIO_KEY",),
    has_accounts=True,
)
