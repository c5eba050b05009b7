"""Access tokens: obtained with the refresh token, cached until a minute before they expire, and never shown."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NoReturn
from urllib.parse import urlencode

from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import HttpClient, NoResponse, Response
from retoma_apps.providers.responses import parse_json_object
from retoma_apps.providers.retry_after import parse_retry_after
from retoma_apps.providers.youtube.settings import YouTubeSettings

_MARGIN = 60.0
_LONGEST = 3600.0
_USUAL_PAUSE = 60


class AccessTokens:
    def __init__(self, settings: YouTubeSettings, outgoing: HttpClient) -> None:
        self._settings = settings
        self._outgoing = outgoing
        self._token = ""
        self.last = ""
        """The last token obtained, valid or not: it must be removed from messages."""
        self._expires_at = 0.0
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        """Return a valid token. Raise ProviderRejected if the account is rejected; the message says what to set."""
        async with self._lock:
            if not self._token or time.monotonic() >= self._expires_at:
                await self._refresh()
            return self._token

    def discard(self, token: str) -> None:
        """Stop using this token. A newer one stays."""
        if self._token == token:
            self._token = ""

    async def _refresh(self) -> None:
        answer = await self._request()
        body = parse_json_object(answer) or {}
        if not answer.is_success:
            self._raise_error(answer, body)
        token, seconds = body.get("access_token"), body.get("expires_in")
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise ProviderDown("Google's answer contains no access token")
        self._token = self.last = token
        known = seconds if isinstance(seconds, int | float) else _MARGIN
        self._expires_at = time.monotonic() + min(known, _LONGEST) - _MARGIN

    async def _request(self) -> Response:
        credentials = self._credentials()
        try:
            return await self._outgoing.request(
                "POST",
                self._settings.token_url,
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                content=urlencode(credentials).encode(),
                timeout=self._settings.timeout_seconds,
            )
        except NoResponse as error:
            raise ProviderDown(f"Google did not answer: {error}") from error

    def _credentials(self) -> dict[str, str]:
        credentials = {
            "client_id": self._settings.client_id,
            "client_secret": self._settings.client_secret.get_secret_value(),
            "refresh_token": self._settings.refresh_token.get_secret_value(),
        }
        for name, value in credentials.items():
            if not value:
                variable = self._settings.token_variable if name == "refresh_token" else f"YOUTUBE_{name.upper()}"
                raise ProviderRejected(
                    f"publishing to YouTube needs credentials: set {variable}, or ask for consent on the page "
                    "of connections"
                )
        return credentials | {"grant_type": "refresh_token"}

    def _raise_error(self, answer: Response, body: dict[str, Any]) -> NoReturn:
        if answer.status == 429:
            raise RateLimited(parse_retry_after(answer) or _USUAL_PAUSE, "Google is rate limiting us")
        if answer.status >= 500:
            raise ProviderDown(f"Google failed with {answer.status} on a request for an access token")
        if body.get("error") == "invalid_grant":
            raise ProviderRejected(
                f"Google no longer accepts this refresh token: ask the channel's owner to consent again, on "
                f"the page Connections, or set {self._settings.token_variable}"
            )
        raise ProviderRejected(
            "Google rejected our client: check YOUTUBE_CLIENT_ID, YOUTUBE_CLIENT_SECRET and "
            f"{self._settings.token_variable}"
        )
