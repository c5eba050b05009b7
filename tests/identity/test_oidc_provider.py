"""The protocol, against a real OpenID provider: what it answers is checked before anybody is believed."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from retoma.server.oidc import SignOnFailed, SignOnFailure
from retoma.server.oidc.provider import LoginRequest, OidcProvider
from tests.identity.provider import CALLBACK, CLIENT_ID, CLIENT_SECRET, Provider
from tests.ports import free_port

ANA = {"email": "ana@example.com", "email_verified": True, "name": "Ana Lima", "groups": ["editors"]}


def open_provider(provider: Provider, **changes: Any) -> OidcProvider:
    values = {"issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET} | changes
    return OidcProvider(**values, scopes="openid email profile")


async def come_back(provider: Provider, url: str, subject: str = "ana") -> dict[str, str]:
    """Log in at the provider, and return the query with which it sends the browser back."""
    provider.set_account(subject, **ANA)
    return dict(parse_qsl(urlsplit(await asyncio.to_thread(provider.log_in, url, subject)).query))


async def test_a_login_returns_the_claims_of_the_person(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    url = await client.build_login_url(request, CALLBACK)
    identity = await client.fetch_identity(request, await come_back(provider, url), CALLBACK)
    assert (identity.issuer, identity.subject) == (provider.issuer, "ana")
    assert (identity.email, identity.is_email_verified, identity.name) == ("ana@example.com", True, "Ana Lima")
    assert identity.claims["groups"] == ["editors"]


async def test_the_request_has_pkce_state_and_nonce_and_no_secret(provider: Provider) -> None:
    request = LoginRequest()
    url = await open_provider(provider).build_login_url(request, CALLBACK)
    sent = parse_qs(urlsplit(url).query)
    assert (sent["code_challenge_method"], sent["state"], sent["nonce"]) == (["S256"], [request.state], [request.nonce])
    assert request.verifier not in url
    assert CLIENT_SECRET not in url


async def test_a_code_works_once(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    await client.fetch_identity(request, answer, CALLBACK)
    await check_refused(client, request, answer, SignOnFailure.PROVIDER_REFUSED)


async def test_a_code_is_useless_without_the_browser_that_asked_for_it(provider: Provider) -> None:
    """The verifier of another login does not fit, even if the state is stolen too."""
    client, request = open_provider(provider), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    await check_refused(client, LoginRequest(state=request.state), answer, SignOnFailure.PROVIDER_REFUSED)


async def test_another_state_is_refused_before_the_code_is_used(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    for wrong in ({**answer, "state": "guessed"}, {"code": answer["code"]}):
        await check_refused(client, request, wrong, SignOnFailure.NOT_STARTED_HERE)
    assert (await client.fetch_identity(request, answer, CALLBACK)).subject == "ana"


async def test_another_nonce_is_refused(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    url = urlsplit(await client.build_login_url(request, CALLBACK))
    query = dict(parse_qsl(url.query)) | {"nonce": "of another login"}
    answer = await come_back(provider, url._replace(query=urlencode(query)).geturl())
    await check_refused(client, request, answer, SignOnFailure.INVALID_TOKEN)


async def test_another_issuer_is_refused(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    await check_refused(client, request, {**answer, "iss": "https://evil.example"}, SignOnFailure.INVALID_TOKEN)


async def test_a_person_who_refuses_is_not_logged_in(provider: Provider) -> None:
    client, request = open_provider(provider), LoginRequest()
    await client.build_login_url(request, CALLBACK)
    answer = {"error": "access_denied", "state": request.state, "iss": provider.issuer}
    await check_refused(client, request, answer, SignOnFailure.PROVIDER_REFUSED)


async def test_a_wrong_secret_of_this_server_is_refused(provider: Provider) -> None:
    client, request = open_provider(provider, client_secret="wrong"), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    with pytest.raises(SignOnFailed) as raised:
        await client.fetch_identity(request, answer, CALLBACK)
    assert raised.value.failure is SignOnFailure.PROVIDER_REFUSED
    assert "401 invalid_client" in raised.value.detail
    assert answer["code"] not in str(raised.value)


async def test_a_provider_that_does_not_answer_is_named_as_such() -> None:
    gone = OidcProvider(f"http://127.0.0.1:{free_port()}", CLIENT_ID, CLIENT_SECRET, "openid")
    with pytest.raises(SignOnFailed) as raised:
        await gone.build_login_url(LoginRequest(), CALLBACK)
    assert raised.value.failure is SignOnFailure.PROVIDER_UNREACHABLE


async def test_the_issuer_must_be_the_one_that_the_provider_names(provider: Provider) -> None:
    client = open_provider(provider, issuer=f"{provider.issuer}/")
    with pytest.raises(SignOnFailed, match="RETOMA_OIDC_ISSUER is"):
        await client.build_login_url(LoginRequest(), CALLBACK)


@pytest.mark.parametrize("forged", ["own key", "shared secret", "unsigned", "other audience"])
async def test_an_id_token_of_somebody_else_is_refused(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    client, request = open_provider(provider), LoginRequest()
    answer = await come_back(provider, await client.build_login_url(request, CALLBACK))
    exchange = OidcProvider._exchange_code

    async def replace_token(self: OidcProvider, *arguments: Any) -> dict[str, Any]:
        tokens = await exchange(self, *arguments)
        if forged == "other audience":
            self._client_id = "another client"
            return tokens
        claims = jwt.decode(tokens["id_token"], await self._fetch_keys(arguments[0])).claims
        return tokens | {"id_token": forge_token(forged, claims)}

    monkeypatch.setattr(OidcProvider, "_exchange_code", replace_token)
    await check_refused(client, request, answer, SignOnFailure.INVALID_TOKEN)


def forge_token(forged: str, claims: dict[str, Any]) -> str:
    if forged == "shared secret":
        return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET))
    if forged == "own key":
        return jwt.encode({"alg": "RS256"}, claims, RSAKey.generate_key(2048))
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


async def check_refused(
    client: OidcProvider, request: LoginRequest, answer: dict[str, str], failure: SignOnFailure
) -> None:
    with pytest.raises(SignOnFailed) as raised:
        await client.fetch_identity(request, answer, CALLBACK)
    assert raised.value.failure is failure
