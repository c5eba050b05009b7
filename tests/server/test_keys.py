"""API keys: made once, shown once, refused at once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from retoma.client.api_keys import ApiKeys
from retoma.engine.api_keys import generate_secret, hash_secret, is_well_formed
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.records import Scope
from retoma.server import auth
from tests.engine.builders import rows, value
from tests.server.api import Api
from tests.server.conftest import OpenApi


def test_a_secret_is_distinguishable_from_other_text() -> None:
    secret = generate_secret()
    assert is_well_formed(secret)
    assert len({generate_secret() for _ in range(100)}) == 100
    for wrong in (
        "",
        "rtm_",
        secret[:-1],
        secret + "a",
        secret.upper(),
        secret[:5] + ("a" if secret[5] != "a" else "b") + secret[6:],
        "é" * len(secret),
    ):
        assert not is_well_formed(wrong)


async def test_only_the_digest_of_a_key_is_stored(api: Api) -> None:
    made = await api.client.api_keys.create("n8n", ["runs:read"])
    (row,) = await rows(api.sandbox, "select k::text as text, digest from retoma.api_keys k where name = 'n8n'")
    assert row["digest"] == hash_secret(made.secret)
    assert made.secret not in row["text"]
    assert made.secret not in repr(made)
    assert made.secret.startswith(made.key.hint)


@pytest.mark.parametrize(
    "header", [{"X-API-Key": "{}"}, {"Authorization": "Bearer {}"}, {"authorization": "bearer {}"}]
)
async def test_a_key_is_accepted_in_either_header(api: Api, header: dict[str, str]) -> None:
    shown = {name: text.format(api.key) for name, text in header.items()}
    assert (await api.get("/api/v1/runs", key=None, headers=shown)).status_code == 200


async def test_a_key_in_the_url_is_ignored(api: Api) -> None:
    answer = await api.get("/api/v1/runs", key=None, params={"api_key": api.key, "X-API-Key": api.key})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_two_different_keys_in_one_request_are_refused(api: Api) -> None:
    answer = await api.get("/api/v1/runs", headers={"Authorization": f"Bearer {generate_secret()}"})
    assert answer.status_code == 401


@pytest.mark.parametrize("key", ["", "rtm_", "é", "\x7f", "a" * 10_000])
async def test_an_invalid_key_is_rejected(api: Api, key: str) -> None:
    answer = await api.get("/api/v1/runs", key=None, headers={"X-API-Key": key.encode("latin-1")})
    assert (answer.status_code, answer.json()["code"]) == (401, "API_KEY_REQUIRED")


async def test_a_revoked_key_is_refused_by_every_server_within_a_second(open_api: OpenApi) -> None:
    async with open_api() as api:
        key_cache = api.server.state.auth._key_cache
        now = 100.0
        key_cache._clock = lambda: now
        assert (await api.get("/api/v1/runs")).status_code == 200
        (key,) = await api.client.api_keys.list()
        await api.client.api_keys.revoke(key.id)
        now += 0.99
        answer = await api.get("/api/v1/runs")
        assert (answer.status_code, answer.json()["code"]) == (401, "API_KEY_REQUIRED")


async def test_a_valid_key_is_looked_up_once_per_interval(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.server.state.auth._key_cache._clock = lambda: 100.0
    requests: list[str] = []
    key_of = api.client.api_keys.find_by_secret

    async def counted(secret: str) -> object:
        requests.append(secret)
        return await key_of(secret)

    monkeypatch.setattr(api.client.api_keys, "find_by_secret", counted)
    for _ in range(5):
        assert (await api.get("/api/v1/runs")).status_code == 200
    assert len(requests) == 1


async def test_an_expired_key_is_refused(api: Api) -> None:
    now = await api.sandbox.clock.now()
    made = await api.client.api_keys.create("short", ["runs:read"], expires_at=now + timedelta(hours=1))
    assert await api.client.api_keys.find_by_secret(made.secret)
    await api.sandbox.clock.advance(timedelta(hours=1))
    assert await api.client.api_keys.find_by_secret(made.secret) is None
    assert (await api.get("/api/v1/runs", key=made.secret)).status_code == 401
    assert [key.name for key in await api.client.api_keys.list()] == ["test"]


async def test_the_last_use_of_a_key_is_recorded_to_the_minute(api: Api) -> None:
    first = await api.sandbox.clock.now()
    for later, noted in ((0, first), (59, first), (2, first + timedelta(seconds=61))):
        await api.sandbox.clock.advance(timedelta(seconds=later))
        await api.client.api_keys.find_by_secret(api.key or "")
        assert await value(api.sandbox, "select used_at from retoma.api_keys") == noted


async def test_at_most_two_keys_of_a_name_are_active(api: Api) -> None:
    first = await api.client.api_keys.create("n8n", ["runs:read"], tenant="blog")
    await api.client.api_keys.create("n8n", ["runs:read"], tenant="blog")
    await api.client.api_keys.create("n8n", ["runs:read"], tenant="shop")
    await api.client.api_keys.create("n8n", ["runs:read"])
    with pytest.raises(Conflict, match="two live keys are already named 'n8n'"):
        await api.client.api_keys.create("n8n", ["runs:read"], tenant="blog")
    await api.client.api_keys.revoke(first.key.id)
    await api.client.api_keys.create("n8n", ["runs:read"], tenant="blog")


async def test_the_error_for_an_invalid_new_key_names_the_field(api: Api) -> None:
    with pytest.raises(InvalidInput, match="expires_at must have a time zone"):
        await api.client.api_keys.create("n8n", ["runs:read"], expires_at=datetime(2031, 1, 1))
    with pytest.raises(InvalidInput, match="a name is a text of 1 to 500 characters"):
        await api.client.api_keys.create("", ["runs:read"])


async def test_an_expired_key_does_not_count_towards_the_limit(api: Api) -> None:
    now = await api.sandbox.clock.now()
    for _ in range(2):
        await api.client.api_keys.create("n8n", ["runs:read"], expires_at=now + timedelta(hours=1))
    await api.sandbox.clock.advance(timedelta(hours=2))
    assert await api.client.api_keys.create("n8n", ["runs:read"])


async def test_rotating_leaves_both_valid_for_a_while(api: Api) -> None:
    now = await api.sandbox.clock.now()
    previous = await api.client.api_keys.create(
        "n8n", ["runs:read"], tenant="blog", expires_at=now + timedelta(days=90)
    )
    await api.sandbox.clock.advance(timedelta(days=10))
    made = await api.client.api_keys.rotate(previous.key.id, overlap=timedelta(hours=2))
    assert (made.key.tenant, made.key.scopes) == ("blog", frozenset({Scope.RUNS_READ}))
    assert made.key.expires_at == now + timedelta(days=100)
    assert await api.client.api_keys.find_by_secret(previous.secret)
    await api.sandbox.clock.advance(timedelta(hours=2))
    assert await api.client.api_keys.find_by_secret(previous.secret) is None
    assert await api.client.api_keys.find_by_secret(made.secret)


async def test_a_key_of_one_tenant_cannot_reach_beyond_it(api: Api) -> None:
    for scope in ("pools:write", "metrics:read", "admin"):
        with pytest.raises(InvalidInput, match="cannot be limited to the tenant 'blog'"):
            await api.client.api_keys.create("n8n", [scope], tenant="blog")


async def test_a_missing_key_is_not_found(api: Api) -> None:
    for act in (api.client.api_keys.revoke, api.client.api_keys.rotate):
        with pytest.raises(NotFound, match="retoma keys list"):
            await act(0)


async def test_the_requests_of_a_key_are_limited_per_minute(open_api: OpenApi) -> None:
    async with open_api(rate_limit_per_minute=3) as api:
        now = 100.0
        api.server.state.auth._request_limiter._clock = lambda: now
        other = await api.make_key("runs:read")
        assert [(await api.get("/api/v1/runs")).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = await api.get("/api/v1/runs")
        assert (refused.headers["retry-after"], refused.json()["code"]) == ("20", "TOO_MANY_REQUESTS")
        assert (await api.get("/api/v1/runs", key=other)).status_code == 200
        now += 20
        assert [(await api.get("/api/v1/runs")).status_code for _ in range(2)] == [200, 429]


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_an_address_that_guesses_keys_is_rate_limited_but_valid_keys_pass(api: Api) -> None:
    fresh = await api.make_key("runs:read")
    assert (await api.get("/api/v1/runs")).status_code == 200
    guesses = [(await api.get("/api/v1/runs", key=generate_secret())).status_code for _ in range(31)]
    assert guesses == [401] * 30 + [429]
    for key, status in ((None, 429), ("no key at all", 429), (api.key, 200), (fresh, 200)):
        assert (await api.get("/api/v1/runs", key=key)).status_code == status


@pytest.mark.usefixtures("frozen_rate_limit")
async def test_guessing_well_formed_keys_does_not_load_the_database(
    open_api: OpenApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1)
    monkeypatch.setattr(auth, "KEY_LOOKUPS_PER_MINUTE", 2)
    looked_for: list[str] = []

    async def none(keys: ApiKeys, secret: str) -> None:
        looked_for.append(secret)

    monkeypatch.setattr(ApiKeys, "find_by_secret", none)
    async with open_api() as api:
        guesses = [(await api.get("/api/v1/runs", key=generate_secret())).status_code for _ in range(9)]
    assert (guesses, len(looked_for)) == ([401] + [429] * 8, 3)
