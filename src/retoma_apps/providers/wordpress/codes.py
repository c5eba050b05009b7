"""The codes of the plugin: which error each becomes, whether it is retried, and what happens next.

`retryable` codes are retried automatically. `who_acts` is nobody, if that is enough; an operator, who has access to the
settings of Retoma and of WordPress; an editor, who decides about the article; or a developer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from retoma import GiveUp
from retoma.errors import RateLimited
from retoma_apps.providers.wordpress.errors import PostChanged, PublicationFailed, SiteRejected

Actor = Literal["nobody", "operator", "editor", "developer"]


@dataclass(frozen=True)
class CodeRule:
    error: type[Exception]
    retryable: bool
    next_action: str
    who_acts: Actor


CODES: dict[str, CodeRule] = {
    "AUTH_FAILED": CodeRule(SiteRejected, False, "set WORDPRESS_SECRET to a valid secret of the site", "operator"),
    "HMAC_INVALID": CodeRule(SiteRejected, False, "check the secret and the clocks of both servers", "operator"),
    "RATE_LIMIT": CodeRule(RateLimited, True, "wait as long as the site asks for", "nobody"),
    "BLOG_SWITCH_FAIL": CodeRule(GiveUp, False, "choose an existing site that our secret gives access to", "operator"),
    "CATEGORY_CREATE_FAIL": CodeRule(PublicationFailed, True, "publish again; the existing draft is used", "nobody"),
    "MEDIA_UPLOAD_FAIL": CodeRule(PublicationFailed, True, "review the draft without its image", "editor"),
    "SEO_APPLY_FAIL": CodeRule(PublicationFailed, True, "publish again; the existing draft is used", "nobody"),
    "PUBLISH_FAILED": CodeRule(PublicationFailed, True, "publish again; the existing draft is used", "nobody"),
    "IDEMPOTENCY_DUPLICATE": CodeRule(GiveUp, False, "publish the changed article as a new revision", "developer"),
    "STALE_REVISION": CodeRule(GiveUp, False, "nothing: a newer revision is already published", "nobody"),
    "POST_EDITED": CodeRule(PostChanged, False, "decide whether to overwrite what a person wrote", "editor"),
    "POST_DELETED": CodeRule(PostChanged, False, "decide whether to create the draft again", "editor"),
    "JOB_NOT_FOUND": CodeRule(GiveUp, False, "publish the article first", "developer"),
    "INVALID_REQUEST": CodeRule(GiveUp, False, "fix the article; the message names the field", "developer"),
    "BODY_TOO_LARGE": CodeRule(GiveUp, False, "use smaller images, or raise PHP's `post_max_size`", "operator"),
}
