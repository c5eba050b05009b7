"""The HTTP client for all requests to other machines. It never connects to private addresses unless allowed.

    client = HttpClient(Guard.from_settings(settings))
    response = await client.request("POST", url, json={"prompt": "tea"}, timeout=30)
    response.status, response.headers["content-type"], response.json()

URLs from callers raise UnsafeUrl unless they lead to a public address. To trust a provider's base URL from the
settings, use `Guard.from_settings(settings).with_origin_of(base_url)`. It allows only that scheme, host and port: call
links in the provider's responses with `Guard.from_settings(settings)`. Redirects are never followed.
"""

from retoma.errors import NoResponse, UnsafeUrl
from retoma.outgoing.client import HttpClient, Response
from retoma.outgoing.guard import LOOPBACK, Guard
from retoma.outgoing.target import mask_query_values, strip_path

__all__ = ["LOOPBACK", "Guard", "HttpClient", "NoResponse", "Response", "UnsafeUrl", "mask_query_values", "strip_path"]
