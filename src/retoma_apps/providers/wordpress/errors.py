"""Errors of publishing.

PublicationFailed         may be retried: the next attempt continues with the existing draft
PostChanged (NeedsReview) a person edited or deleted the post: somebody decides (POST_EDITED, POST_DELETED)
SiteRejected (ProviderRejected) the site rejects our secret (AUTH_FAILED, HMAC_INVALID)
GiveUp                    the publication is rejected: a retry would not help
RetryLater                the same article is being published by another request

If the whole site fails or rejects our secret, no article is at fault: the engine's ProviderDown, ProviderRejected and
RateLimited pause the pool, and no attempt is used up.
"""

from __future__ import annotations

from retoma import NeedsReview
from retoma.errors import ProviderRejected


class PublicationFailed(Exception):
    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


class PostChanged(NeedsReview):
    """`edited` are the parts of the post that a person changed. Publishing with `force` overwrites them."""

    def __init__(self, reason: str, code: str, edited: tuple[str, ...] = ()) -> None:
        super().__init__(reason, code=code)
        self.edited = edited


class SiteRejected(ProviderRejected):
    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code
