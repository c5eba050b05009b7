"""The connection to YouTube: the owner of a channel consents in the browser (OAuth 2 with PKCE)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from retoma import GiveUp
from retoma.connections import ConnectionField, ConnectionType, Consent
from retoma.errors import ProviderDown
from retoma.outgoing import HttpClient, NoResponse
from retoma_apps.providers.responses import format_provider_message, parse_json_object
from retoma_apps.providers.youtube.settings import YouTubeSettings
from retoma_apps.providers.youtube.youtube import YouTube, build_guard

SCOPES = (
    "https://www.googleapis.com/auth/youtube.upload",
    "https://www.googleapis.com/auth/youtube.force-ssl",  # reads our videos, and sets thumbnails and captions
)
_NO_CLIENT = (
    "YouTube needs an OAuth client before anybody can consent: enter its id and secret in the connection, or set "
    "YOUTUBE_CLIENT_ID and YOUTUBE_CLIENT_SECRET"
)


def build_consent_url(values: Mapping[str, str], state: str, challenge: str, redirect_uri: str) -> str:
    settings = _read_client(values)
    query = {
        "client_id": settings.client_id,
        "redirect_uri": redirect_uri,
        "response_type": "code",
        "scope": " ".join(SCOPES),
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "access_type": "offline",  # a refresh token
        "prompt": "consent",  # one for each consent, not only for the first
    }
    return f"{settings.consent_url}?{urlencode(query)}"


async def exchange_code(values: Mapping[str, str], code: str, verifier: str, redirect_uri: str) -> dict[str, str]:
    """Return the refresh token. Raise GiveUp if Google refuses the code, or ProviderDown if it does not answer."""
    settings = _read_client(values)
    request = {
        "grant_type": "authorization_code",
        "code": code,
        "code_verifier": verifier,
        "client_id": settings.client_id,
        "client_secret": settings.client_secret.get_secret_value(),
        "redirect_uri": redirect_uri,
    }
    outgoing = HttpClient(build_guard(settings))
    try:
        answer = await outgoing.request(
            "POST",
            settings.token_url,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            content=urlencode(request).encode(),
            timeout=settings.timeout_seconds,
        )
    except NoResponse as error:
        raise ProviderDown(f"Google did not answer: {error}") from error
    finally:
        await outgoing.close()
    body = parse_json_object(answer) or {}
    if not answer.is_success:
        why = format_provider_message(body.get("error"), code, verifier, request["client_secret"])
        raise GiveUp(f"Google did not accept the consent with {answer.status}{why}: start again", "CONSENT_REFUSED")
    token = body.get("refresh_token")
    if not isinstance(token, str) or not token:
        raise GiveUp("Google's answer contains no refresh token: start again", "CONSENT_INCOMPLETE")
    return {"refresh_token": token}


async def try_connection(values: Mapping[str, str]) -> str:
    channel = YouTube(YouTubeSettings.from_connection("", values) if values else YouTubeSettings())
    try:
        return await channel.check_account()
    finally:
        await channel.close()


def _read_client(values: Mapping[str, str]) -> YouTubeSettings:
    settings = YouTubeSettings.from_connection("", values)
    if not settings.client_id or not settings.client_secret.get_secret_value():
        raise GiveUp(_NO_CLIENT, "NO_OAUTH_CLIENT")
    return settings


CONNECTION = ConnectionType(
    YouTube.name,
    "YouTube",
    (
        ConnectionField("client_id", "OAuth client id", required=False, help="Empty: YOUTUBE_CLIENT_ID."),
        ConnectionField("client_secret", "OAuth client secret", "secret", False, "Empty: YOUTUBE_CLIENT_SECRET."),
        ConnectionField("refresh_token", "Consent of the channel's owner", "secret"),
    ),
    try_connection,
    variables=YouTube.variables,
    has_accounts=True,
    consent=Consent(build_consent_url, exchange_code, ("refresh_token",)),
)
