"""Compress pages for browsers that accept it.

A page reflects text of its address, so its length could reveal a secret in it, guess by guess (BREACH): CSRF tokens are
masked with new random bytes in each response (`retoma.server.sessions`).
"""

from __future__ import annotations

import gzip

from starlette.requests import Request
from starlette.responses import Response

MIN_BYTES = 1_000  # shorter responses fit into one packet anyway
LEVEL = 5
TEXT_TYPES = ("text/html", "text/css", "text/javascript", "image/svg+xml", "application/json")


def compress(request: Request, response: Response) -> None:
    """Compress the body of the response in place, if the browser accepts it and it is a text that is long enough."""
    if not response.headers.get("content-type", "").startswith(TEXT_TYPES):
        return
    response.headers.add_vary_header("Accept-Encoding")
    body = getattr(response, "body", b"")
    if len(body) < MIN_BYTES or "content-encoding" in response.headers or not _accepts_gzip(request):
        return
    response.body = gzip.compress(bytes(body), LEVEL, mtime=0)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    if "etag" in response.headers:  # the same content in another encoding
        response.headers["ETag"] = f"W/{response.headers['etag'].removeprefix('W/')}"


def _accepts_gzip(request: Request) -> bool:
    """Return whether the browser lists gzip without the quality 0."""
    for part in request.headers.get("accept-encoding", "").replace(" ", "").split(","):
        name, _, quality = part.partition(";q=")
        if name == "gzip":
            return quality.strip("0.") != "" or quality == ""
    return False
