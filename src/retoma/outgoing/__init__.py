"""The one HTTP client: every request to another machine goes through it, and none reaches a private address.

    outgoing = Outgoing(Guard.of(settings))
    answer = await outgoing.request("POST", url, json={"prompt": "tea"}, timeout=30)
    answer.status, answer.headers["content-type"], answer.json()

A URL that a caller gives is refused with UnsafeUrl unless it leads to a public address; a provider's own base URL,
which comes from the settings, is trusted with `Guard.of(settings).allowing(base_url)`: its scheme, host and port, and
not the links in its answers, which are called by `Guard.of(settings)`. Redirects are never followed.
"""

from retoma.errors import NoResponse, UnsafeUrl
from retoma.outgoing.client import HttpClient, Response
from retoma.outgoing.guard import LOOPBACK, Guard
from retoma.outgoing.target import mask_query_values, strip_path

__all__ = ["LOOPBACK", "Guard", "HttpClient", "NoResponse", "Response", "UnsafeUrl", "mask_query_values", "strip_path"]
