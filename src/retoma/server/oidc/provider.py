"""The OpenID provider: discovery, the authorization request, and the exchange of a code for a checked ID token.

Authlib implements the protocol. Requests are sent by `retoma.outgoing`, like all others.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlsplit

from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import OpenIDProviderMetadata
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from retoma.errors import NoResponse, UnsafeUrl
from retoma.outgoing import Guard, HttpClient, Response
from retoma.server.oidc.claims import Identity, merge_claims
from retoma.server.oidc.failure import SignOnFailed, SignOnFailure

METADATA_SECONDS = 3600.0
MAX_BODY = 512 * 1024  # bytes of one response
CLOCK_LEEWAY = 60  # seconds between the clocks of the provider and of this server
# A shared secret must not sign: everybody who knows it could log in as anybody.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True)
class LoginRequest:
    """What the browser keeps while its person is at the provider. All of it is random."""

    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))


class OidcProvider:
    """One provider, by the issuer of the settings. Its metadata and keys are read again after an hour."""

    def __init__(
        self, issuer: str, client_id: str, client_secret: str | None, scopes: str, *, guard: Guard | None = None
    ) -> None:
        self.issuer = issuer
        self._client_id = client_id
        self._client_secret = client_secret
        self._scopes = scopes
        self._guard = (guard or Guard()).with_origin_of(issuer)
        self._metadata: Mapping[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = -METADATA_SECONDS

    async def build_login_url(self, request: LoginRequest, redirect_uri: str) -> str:
        """Return the address at the provider where the person logs in."""
        async with HttpClient(self._guard) as http:
            metadata = await self._get_metadata(http)
        url: str = prepare_grant_uri(
            metadata["authorization_endpoint"],
            self._client_id,
            "code",
            redirect_uri=redirect_uri,
            scope=self._scopes,
            state=request.state,
            nonce=request.nonce,
            code_challenge=create_s256_code_challenge(request.verifier),
            code_challenge_method="S256",
        )
        return url

    async def fetch_identity(self, request: LoginRequest, answer: Mapping[str, str], redirect_uri: str) -> Identity:
        """Return who logged in, from the query with which the provider sent the browser back.

        Raise SignOnFailed.
        """
        async with HttpClient(self._guard) as http:
            metadata = await self._get_metadata(http)
            self._check_answer(request, answer, metadata)
            tokens = await self._exchange_code(http, metadata, request, answer["code"], redirect_uri)
            claims = await self._check_id_token(http, tokens, request.nonce)
            more = await self._fetch_user_info(http, metadata, tokens, claims["sub"])
        return Identity.from_claims(self.issuer, merge_claims(claims, more))

    def _check_answer(self, request: LoginRequest, answer: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        if not secrets.compare_digest(answer.get("state", "").encode(), request.state.encode()):
            raise SignOnFailed(SignOnFailure.NOT_STARTED_HERE, "the state is another one")
        # Another provider must not be able to pass off its code as one of this provider.
        is_named = bool(metadata.get("authorization_response_iss_parameter_supported")) or "iss" in answer
        if is_named and answer.get("iss") != self.issuer:
            raise SignOnFailed(SignOnFailure.INVALID_TOKEN, "the answer names another issuer")
        if "code" not in answer:
            raise SignOnFailed(SignOnFailure.PROVIDER_REFUSED, answer.get("error", "")[:100])

    async def _exchange_code(
        self, http: HttpClient, metadata: Mapping[str, Any], request: LoginRequest, code: str, redirect_uri: str
    ) -> dict[str, Any]:
        form = prepare_token_request(
            "authorization_code", redirect_uri=redirect_uri, code=code, code_verifier=request.verifier
        )
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        auth = ClientAuth(self._client_id, self._client_secret, self._choose_auth_method(metadata))
        url, headers, body = auth.prepare("POST", metadata["token_endpoint"], headers, form)
        response = await self._send(http, "POST", url, headers=headers, content=body.encode())
        tokens = _read_object(response) if response.is_success else {}
        if not isinstance(tokens.get("id_token"), str):
            error = "" if response.is_success else _describe_refusal(response)
            raise SignOnFailed(SignOnFailure.PROVIDER_REFUSED, f"no ID token for the code {error}")
        return tokens

    def _choose_auth_method(self, metadata: Mapping[str, Any]) -> Any:
        if self._client_secret is None:
            return "none"
        supported = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return _encode_basic if "client_secret_basic" in supported else "client_secret_post"

    async def _check_id_token(self, http: HttpClient, tokens: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        token = await self._decode(http, tokens["id_token"])
        claims = CodeIDToken(
            token.claims,
            token.header,
            options={
                "iss": {"essential": True, "value": self.issuer},
                "aud": {"essential": True, "value": self._client_id},
            },
            params={"nonce": nonce, "client_id": self._client_id, "access_token": tokens.get("access_token")},
        )
        try:
            claims.validate(leeway=CLOCK_LEEWAY)
        except JoseError as error:
            raise SignOnFailed(SignOnFailure.INVALID_TOKEN, str(error)) from error
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise SignOnFailed(SignOnFailure.INVALID_TOKEN, "the subject is not a text")
        return dict(claims)

    async def _decode(self, http: HttpClient, id_token: str) -> jwt.Token:
        """Check the signature. If no known key fits, read the keys once more: the provider may have a new one."""
        if self._keys is not None:
            with suppress(JoseError, ValueError):
                return jwt.decode(id_token, self._keys, algorithms=list(ALGORITHMS))
        try:
            return jwt.decode(id_token, await self._fetch_keys(http), algorithms=list(ALGORITHMS))
        except (JoseError, ValueError) as error:
            raise SignOnFailed(SignOnFailure.INVALID_TOKEN, f"{type(error).__name__}: {error}") from error

    async def _fetch_user_info(
        self, http: HttpClient, metadata: Mapping[str, Any], tokens: Mapping[str, Any], subject: str
    ) -> dict[str, Any]:
        """Return the claims that the provider does not put into the ID token."""
        url, access_token = metadata.get("userinfo_endpoint"), tokens.get("access_token")
        if not url or not access_token:
            return {}
        response = await self._send(http, "GET", url, headers={"authorization": f"Bearer {access_token}"})
        claims = _read_object(response) if response.is_success else {}
        if claims.get("sub") != subject:  # another person's claims, or none
            raise SignOnFailed(SignOnFailure.INVALID_TOKEN, f"no user info of this subject ({response.status})")
        return claims

    async def _get_metadata(self, http: HttpClient) -> Mapping[str, Any]:
        if time.monotonic() - self._read_at >= METADATA_SECONDS:
            url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            metadata = OpenIDProviderMetadata(await self._fetch_document(http, url))
            self._check_metadata(metadata)
            self._metadata, self._keys, self._read_at = metadata, None, time.monotonic()
        return self._metadata

    def _check_metadata(self, metadata: OpenIDProviderMetadata) -> None:
        endpoints = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        found = str(metadata.get("issuer"))[:200]
        if found != self.issuer or not all(isinstance(metadata.get(name), str) for name in endpoints):
            raise SignOnFailed(
                SignOnFailure.PROVIDER_UNREACHABLE,
                f"RETOMA_OIDC_ISSUER is {self.issuer}, but the document there is of {found}",
            )
        if urlsplit(metadata["authorization_endpoint"]).scheme not in ("https", urlsplit(self.issuer).scheme):
            raise SignOnFailed(SignOnFailure.PROVIDER_UNREACHABLE, "the address of its login is not an https address")

    async def _fetch_keys(self, http: HttpClient) -> KeySet:
        document = await self._fetch_document(http, self._metadata["jwks_uri"])
        try:
            self._keys = KeySet.import_key_set(document)  # type: ignore[arg-type]
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise SignOnFailed(SignOnFailure.PROVIDER_UNREACHABLE, f"its keys are not valid: {error}") from error
        return self._keys

    async def _fetch_document(self, http: HttpClient, url: str) -> dict[str, Any]:
        response = await self._send(http, "GET", url, headers={"accept": "application/json"})
        document = _read_object(response) if response.is_success else {}
        if not document:
            raise SignOnFailed(SignOnFailure.PROVIDER_UNREACHABLE, f"{url} answered {response.status}")
        return document

    async def _send(self, http: HttpClient, method: str, url: str, **options: Any) -> Response:
        try:
            return await http.request(method, url, limit=MAX_BODY, **options)
        except (NoResponse, UnsafeUrl) as error:
            raise SignOnFailed(SignOnFailure.PROVIDER_UNREACHABLE, str(error)) from error


def _encode_basic(client: ClientAuth, _: str, uri: str, headers: dict[str, str], body: str) -> tuple[Any, ...]:
    """Send id and secret as RFC 6749 says, which is not as they are: a colon would end the id."""
    text = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    return uri, headers | {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}, body


def _read_object(response: Response) -> dict[str, Any]:
    try:
        found = response.json()
    except (ValueError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _describe_refusal(response: Response) -> str:
    """Return the code of the error. Its description may repeat what was sent."""
    return f"({response.status} {str(_read_object(response).get('error', ''))[:60]})"
