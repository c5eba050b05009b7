"""WordPress: a thin client for the plugin AutoWriter (`wordpress/autowriter` in the repository)."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from retoma import GiveUp, Settings
from retoma.connections import ConnectionField, ConnectionType, TenantConnections
from retoma.errors import ProviderDown, ProviderRejected
from retoma.outgoing import Guard, HttpClient, NoResponse, Response
from retoma_apps.providers.http_service import HttpService
from retoma_apps.providers.responses import parse_json
from retoma_apps.providers.wordpress.error_mapping import raise_error, read_code
from retoma_apps.providers.wordpress.port import (
    Article,
    BlogInfo,
    Image,
    JobStatus,
    OpenBlog,
    PostLink,
    Publication,
    Published,
)
from retoma_apps.providers.wordpress.settings import WordPressSettings
from retoma_apps.providers.wordpress.signature import sign_headers

NAMESPACE = "/autowriter/v1"
MAX_BODY_BYTES = 16 * 1024**2

AnswerType = TypeVar("AnswerType")


_POSTS = TypeAdapter(list[Annotated[PostLink, BeforeValidator(lambda post: _read_post(post))]])


def now_utc() -> datetime:
    return datetime.now(UTC)


class WordPress(HttpService[WordPressSettings]):
    """Create it where it is used: its connections belong to one event loop."""

    name = "wordpress"
    is_offline = False
    variables: tuple[str, ...] = ("WORDPRESS_BASE_URL", "WORDPRESS_SECRET")
    label = "WordPress"
    settings_type = WordPressSettings

    def __init__(
        self,
        settings: WordPressSettings | None = None,
        outgoing: HttpClient | None = None,
        now: Callable[[], datetime] = now_utc,
    ) -> None:
        super().__init__(settings, outgoing)
        self._now = now
        self._addresses: dict[int, str] = {}

    @classmethod
    def for_tenant(cls, connections: TenantConnections, folder: Path) -> OpenBlog | None:  # type: ignore[override]  # a blog is opened by its name
        """With one configured site, another one without a secret waits for it."""
        if not connections.has(cls.name) and not WordPressSettings().is_configured:
            return None

        @cache
        def open_blog(site: str) -> WordPress:
            values = connections.find(cls.name, site)
            return cls(WordPressSettings.for_site(site)) if values is None else cls.from_connection(values, site)

        return open_blog

    @classmethod
    def from_connection(cls, values: Mapping[str, str], site: str = "") -> Self:
        """A person who enters the address administers a tenant, not this machine: see `HttpService.from_connection`."""
        settings = WordPressSettings.from_connection(site, values)
        return cls(settings, HttpClient(Guard.from_settings(Settings())))

    async def check_account(self) -> str:
        found = await self.ping()
        return f"{found.site_name!r:.100} at {found.site_url:.200} accepts the secret"

    @property
    def settings(self) -> WordPressSettings:
        return self._settings

    async def publish(self, publication: Publication) -> Published:
        body = json.dumps(_to_json(publication)).encode()
        if len(body) > MAX_BODY_BYTES:
            raise GiveUp(
                f"the article has {len(body)} bytes with its images, and WordPress accepts {MAX_BODY_BYTES}: "
                "use smaller images",
                "BODY_TOO_LARGE",
            )
        return self._parse(TypeAdapter(Published), await self._send("POST", "/jobs", body))

    async def get_job(self, idempotency_key: str) -> JobStatus | None:
        answer = await self._send("GET", f"/jobs/{idempotency_key}", may_be_unknown=True)
        return self._parse_status(answer)

    async def mark(self, idempotency_key: str, note: str) -> JobStatus | None:
        body = json.dumps({"note": note}).encode()
        answer = await self._send("POST", f"/jobs/{idempotency_key}/mark", body, may_be_unknown=True)
        return self._parse_status(answer)

    async def list_posts(self, blog_id: int | None = None) -> list[PostLink]:
        """Any visitor may list posts, so the request is not signed."""
        site = self._origin if blog_id is None else await self._find_site(blog_id)
        url = f"{site.rstrip('/')}/?rest_route=/wp/v2/posts&per_page=100&_fields=link,title"
        try:
            answer = await self._outgoing.request("GET", url, timeout=self._settings.timeout_seconds)
        except NoResponse as error:
            raise self._no_answer(error) from error
        if not answer.is_success:
            self._addresses.clear()
            raise_error(answer, site, "")
        return self._parse(_POSTS, answer)

    async def _find_site(self, blog_id: int) -> str:
        """Return the address of a site of the network. All are asked for at once and kept until one fails."""
        if blog_id not in self._addresses:
            self._addresses = {site.blog_id: site.url for site in (await self.ping()).sites}
        if blog_id not in self._addresses:
            raise GiveUp(f"our secret gives no access to site {blog_id} of {self._origin}", "BLOG_SWITCH_FAIL")
        return self._addresses[blog_id]

    async def ping(self) -> BlogInfo:
        return self._parse(TypeAdapter(BlogInfo), await self._send("GET", "/ping"))

    async def _send(self, method: str, path: str, body: bytes = b"", *, may_be_unknown: bool = False) -> Response:
        """Return a successful answer, or that for an unknown job if it `may_be_unknown`. Raise an error for others."""
        if not self._origin:
            variable = self._settings.get_variable("BASE_URL")
            raise ProviderRejected(f"publishing to WordPress needs an address: set {variable}")
        credentials, route = self._settings.list_credentials()[0], f"{NAMESPACE}{path}"
        headers = {"content-type": "application/json", **sign_headers(credentials, method, route, body, self._now())}
        # In the query, because the path /wp-json exists only with some permalinks.
        answer = await self._request(method, f"/?rest_route={route}", headers, content=body or None)
        if not answer.is_success and not (may_be_unknown and read_code(answer) == "JOB_NOT_FOUND"):
            raise_error(answer, self._origin, credentials.secret)
        return answer

    @property
    def _key(self) -> str:
        return self._settings.list_credentials()[0].secret

    def _parse_status(self, answer: Response) -> JobStatus | None:
        return self._parse(TypeAdapter(JobStatus), answer) if answer.is_success else None

    def _parse(self, kind: TypeAdapter[AnswerType], answer: Response) -> AnswerType:
        try:
            return kind.validate_python(parse_json(answer))
        except ValidationError:
            raise ProviderDown(f"{self._origin} sent an answer that is not the plugin's") from None


def _read_post(post: Any) -> Any:
    """Return a post of WordPress's own API in our form. Its title is HTML."""
    if not isinstance(post, dict) or not isinstance(post.get("title"), dict):
        return post
    return {"url": post.get("link"), "title": html.unescape(str(post["title"].get("rendered")))}


def _to_json(publication: Publication) -> dict[str, Any]:
    return {
        "idempotency_key": publication.idempotency_key,
        "job_id": publication.job_id,
        "revision": publication.revision,
        "blog_id": publication.blog_id,
        "force": publication.force,
        "article": _article_to_json(publication.article),
    }


def _article_to_json(article: Article) -> dict[str, Any]:
    return {
        "title": article.title,
        "slug": article.slug,
        "content": article.content,
        "excerpt": article.excerpt,
        "language": article.language,
        "categories": list(article.categories),
        "tags": list(article.tags),
        "seo": {
            "title": article.seo.title,
            "description": article.seo.description,
            "focus_keyword": article.seo.focus_keyword,
        },
        "images": [_image_to_json(each) for each in article.images],
    }


def _image_to_json(image: Image) -> dict[str, str]:
    return {
        "key": image.key,
        "type": image.kind,
        "filename": image.filename,
        "mime": image.mime,
        "alt": image.alt,
        "data": b64encode(image.content).decode(),
    }


CONNECTION = ConnectionType(
    WordPress.name,
    "WordPress",
    (
        ConnectionField("base_url", "Address", "url", help="Such as https://blog.example.com."),
        ConnectionField("secret", "Secret of the plugin", "secret", help="From the settings of AutoWriter."),
    ),
    WordPress.try_connection,
    variables=WordPress.variables,
    has_accounts=True,
    help="The account is the name of the site, as blogs name it.",
)
