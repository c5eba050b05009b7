"""Connections: encrypted with a key outside the database, and used by the resources of each tenant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from retoma import App, Context, Pipeline, PollResult, Pool, ProviderChain, Retry, masking, minutes, seconds
from retoma.connections import PerTenant, TenantConnections
from retoma.encryption import Keyring, generate_key
from retoma.errors import (
    AccessDenied,
    ConnectionKeyMissing,
    DefinitionError,
    InvalidInput,
    NotFound,
    ProviderRejected,
    RateLimited,
    SubmissionUnknown,
)
from retoma.masking import mask_secrets
from retoma.providers import SingleProvider
from retoma.records import Connection
from retoma.settings import Settings
from retoma.store import connections as store
from retoma.store.connections import ConnectionKey
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, rows, run_next, state, value
from tests.studio import STUDIO

CANARY = "CANARY-7f3c9b2e"
ANA, BIA = "ana", "bia"


@dataclass
class Studio:
    """A provider that works with one key."""

    key: str
    log: list[tuple[str, str]]
    error: Callable[[str], Exception | None] = lambda key: None
    name: str = "studio"

    def render(self) -> str:
        self.log.append(("render", self.key))
        if (error := self.error(self.key)) is not None:
            raise error
        return self.key

    async def submit(self) -> str:
        self.log.append(("submit", self.key))
        return "job-1"

    async def poll(self, external_id: str) -> PollResult:
        self.log.append(("poll", self.key))
        return PollResult("succeeded", result=self.key)

    async def lose(self) -> str:
        self.log.append(("lose", self.key))
        raise SubmissionUnknown("the answer was lost")

    def find(self, key: str) -> str | None:
        self.log.append(("find", self.key))
        return "job-1"

    async def cancel(self, external_id: str) -> None:
        self.log.append(("cancel", self.key))


@dataclass
class Builder:
    """Builds studios, and keeps what was built and what all of them did."""

    built: list[str] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    error: Callable[[str], Exception | None] = lambda key: None

    def __call__(self, connections: TenantConnections) -> Studio:
        values = connections.find("studio") or {"api_key": "environment"}
        self.built.append(values["api_key"])
        return Studio(values["api_key"], self.log, self.error)

    def __hash__(self) -> int:
        return id(self)


def films(**options: Any) -> Pipeline:
    pipeline = Pipeline("films", retry=Retry(1, delays=[60], jitter=0))

    @pipeline.step(**options)
    def render(*, studio: Studio) -> str:
        return studio.render()

    return pipeline


def per_tenant(builder: Builder) -> dict[str, Any]:
    return {"resources": {"studio": PerTenant(builder)}, "connections": [STUDIO]}


async def enter(sandbox: Sandbox, key: str, tenant: str | None = None, **values: str) -> Connection:
    return await sandbox.client.connections.set("studio", {"api_key": key, **values}, tenant=tenant, by="Ana")


async def render(sandbox: Sandbox, pipeline: Pipeline, tenant: str) -> Any:
    return (await sandbox.run(pipeline, tenant=tenant)).results["render"]


async def test_each_tenant_uses_its_own_key_else_that_of_all_else_the_environment(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = films(), Builder()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        assert await render(sandbox, pipeline, ANA) == "environment"
        await enter(sandbox, "key-of-all")
        await enter(sandbox, "key-of-bia", BIA)
        assert await render(sandbox, pipeline, ANA) == "key-of-all"
        assert await render(sandbox, pipeline, BIA) == "key-of-bia"
        await sandbox.client.connections.delete("studio", tenant=BIA)
        assert await render(sandbox, pipeline, BIA) == "key-of-all"


async def test_a_change_takes_effect_without_a_restart_and_nothing_is_built_twice(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = films(), Builder()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        builder.built.clear()
        await enter(sandbox, "first-key", ANA)
        async with sandbox.manual_worker() as hands:
            for key in ("first-key", "first-key", "second-key"):
                if key == "second-key":
                    await enter(sandbox, key, ANA)
                await sandbox.client.start(pipeline, tenant=ANA)
                await run_next(hands, "render")
        assert builder.built == ["first-key", "second-key"]
        assert builder.log == [("render", "first-key"), ("render", "first-key"), ("render", "second-key")]


async def test_tenants_without_own_connections_share_what_is_built(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = films(), Builder()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-all")
        builder.built.clear()
        async with sandbox.manual_worker() as hands:
            for tenant in (ANA, BIA, ANA):
                await sandbox.client.start(pipeline, tenant=tenant)
                await run_next(hands, "render")
        assert builder.built == ["key-of-all"]


async def test_external_work_is_submitted_and_polled_with_the_key_of_its_tenant(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = Pipeline("films"), Builder()

    @pipeline.step
    async def render(*, studio: Studio, ctx: Context) -> Any:
        return await ctx.external(studio.submit, poll=studio.poll, cancel=studio.cancel, poll_interval=seconds(5))

    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-ana", ANA)
        await enter(sandbox, "key-of-bia", BIA)
        for tenant in (ANA, BIA):
            assert (await sandbox.run(pipeline, tenant=tenant)).results == {"render": f"key-of-{tenant}"}
        assert builder.log == [(call, f"key-of-{tenant}") for tenant in (ANA, BIA) for call in ("submit", "poll")]


async def test_a_lost_submission_is_found_and_cancelled_with_the_key_of_its_tenant(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = Pipeline("films"), Builder()

    @pipeline.step
    async def render(*, studio: Studio, ctx: Context) -> Any:
        return await ctx.once("render", studio.lose, find=studio.find, cancel=studio.cancel)

    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-all")
        await enter(sandbox, "key-of-ana", ANA)
        run = (await sandbox.client.start(pipeline, tenant=ANA)).id
        async with sandbox.manual_worker() as hands:
            await run_next(hands, "render")
        await sandbox.client.runs.cancel(run)
        await sandbox.work()
        assert await state(sandbox, run) == "cancelled"
        assert builder.log == [(call, "key-of-ana") for call in ("lose", "find", "cancel")]


async def test_a_tenant_may_have_a_chain_where_others_have_one_provider(open_sandbox: OpenSandbox) -> None:
    pipeline, log = Pipeline("films", retry=Retry(1, delays=[60], jitter=0)), list[tuple[str, str]]()

    @pipeline.step
    def render(*, studio: Studio) -> str:
        return studio.render()

    def build(connections: TenantConnections) -> Any:
        if (values := connections.find("studio")) is None:
            return Studio("environment", log)
        down = Studio(values["api_key"], log, lambda _: ProviderRejected("no credit"), name="first")
        return ProviderChain([down, Studio(values["api_key"], log, name="second")])

    async with open_sandbox(pipeline, resources={"studio": PerTenant(build)}, connections=[STUDIO]) as sandbox:
        await enter(sandbox, "key-of-ana", ANA)
        results = [(await sandbox.run(pipeline, tenant=each)).results["render"] for each in (ANA, BIA)]
        assert results == ["key-of-ana", "environment"]
        assert log == [("render", "key-of-ana")] * 2 + [("render", "environment")]
        pools = {row["name"]: row["trouble"] for row in await rows(sandbox, "select name, trouble from retoma.pools")}
        assert pools == {"first@ana": "PROVIDER_REJECTED", "second@ana": None}


@pytest.mark.parametrize("error", [ProviderRejected("bad key"), RateLimited(minutes(5), "slow down")], ids=repr)
async def test_the_key_of_one_tenant_stops_no_other_one(error: Exception, open_sandbox: OpenSandbox) -> None:
    builder = Builder(error=lambda key: error if key == "key-of-ana" else None)
    pipeline = films(pool=Pool("studio", capacity=5))
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-ana", ANA)
        async with sandbox.manual_worker() as hands:
            await sandbox.client.start(pipeline, tenant=ANA)
            await run_next(hands, "render")
            await sandbox.client.start(pipeline, tenant=BIA)
            await run_next(hands, "render")
        assert builder.log == [("render", "key-of-ana"), ("render", "environment")]


async def test_a_rejected_key_of_all_tenants_still_stops_their_pool(open_sandbox: OpenSandbox) -> None:
    builder = Builder(error=lambda _: ProviderRejected("bad key"))
    pipeline = films(pool=Pool("studio", capacity=5))
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-all")
        async with sandbox.manual_worker() as hands:
            await sandbox.client.start(pipeline, tenant=ANA)
            await run_next(hands, "render")
            await sandbox.client.start(pipeline, tenant=BIA)
            assert await hands.claim(1) == []


async def test_a_job_whose_connection_cannot_be_decrypted_waits_for_another_worker(open_sandbox: OpenSandbox) -> None:
    pipeline, builder = films(), Builder()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-ana", ANA)
        right, sandbox.keyring = sandbox.keyring, Keyring.generate()
        run = (await sandbox.client.start(pipeline, tenant=ANA)).id
        async with sandbox.manual_worker() as hands:
            await run_next(hands, "render")
        assert await codes(sandbox, run) == {"render": "CONNECTION_KEY_MISSING"}
        assert await value(sandbox, "select failures from retoma.jobs") == 0
        sandbox.keyring = right
        await sandbox.work()
        assert await state(sandbox, run) == "completed"


async def test_a_resource_that_cannot_be_built_fails_the_job_with_its_error(open_sandbox: OpenSandbox) -> None:
    pipeline = films()

    def build(connections: TenantConnections) -> Studio:
        raise ValueError("the voice is not known")

    async with open_sandbox(pipeline, resources={"studio": build_lazily(build)}) as sandbox:
        run = (await sandbox.run(pipeline)).id
        assert await codes(sandbox, run) == {"render": "RESOURCE_FAILED"}


def build_lazily(build: Callable[[TenantConnections], Studio]) -> PerTenant:
    """A resource that fails only when a worker builds it."""
    made: list[int] = []

    def built(connections: TenantConnections) -> Studio:
        made.append(1)
        return build(connections) if len(made) > 1 else Studio("environment", [])

    return PerTenant(built)


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        (ProviderChain({"a": PerTenant(lambda _: None)}), "chain"),
        (SingleProvider("a", PerTenant(lambda _: None)), "provider"),
    ],
)
def test_providers_with_a_resource_per_tenant_in_them_are_refused(resource: object, kind: str) -> None:
    with pytest.raises(DefinitionError, match=f"a PerTenant whose build returns the {kind}"):
        App("test", pipelines=[films()], resources={"studio": resource})


async def test_a_secret_is_stored_encrypted_and_never_returned(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        shown = await enter(sandbox, CANARY, ANA, voice="Rosa")
        assert (shown.settings, shown.secret_fields, shown.tenant) == ({"voice": "Rosa"}, ("api_key",), ANA)
        assert CANARY not in repr([shown, *await sandbox.client.connections.list()])
        tables = await rows(sandbox, "select c::text from retoma.connections c")
        audit = await rows(sandbox, "select a::text, before::text, after::text from retoma.audit_log a")
        assert CANARY not in str([*tables, *audit])
        assert CANARY.encode().hex() not in str(tables)
        assert json.loads(audit[-1]["after"]) == {"fields": ["api_key", "voice"], "changed": ["api_key", "voice"]}


async def test_every_change_has_an_entry_of_the_audit_log_without_values(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        client = sandbox.client.connections
        await enter(sandbox, CANARY, ANA)
        await client.test("studio", tenant=ANA)
        await client.set("studio", {"voice": "Rosa"}, tenant=ANA)
        await client.delete("studio", tenant=ANA)
        found = await sandbox.client.audit.list()
        assert [(each.action, each.object_id, each.tenant) for each in reversed(found)] == [
            (f"connection.{action}", "ana/studio", ANA) for action in ("set", "test", "set", "delete")
        ]
        assert CANARY not in repr(found)


async def test_fields_that_are_not_given_stay_and_an_empty_text_removes_one(open_sandbox: OpenSandbox) -> None:
    builder = Builder()
    async with open_sandbox(films(), **per_tenant(builder)) as sandbox:
        await enter(sandbox, "key-of-ana", ANA, voice="Rosa")
        changed = await sandbox.client.connections.set("studio", {"voice": " "}, tenant=ANA)
        assert (changed.settings, changed.secret_fields) == ({}, ("api_key",))
        with pytest.raises(InvalidInput, match="also needs api_key"):
            await sandbox.client.connections.set("studio", {"api_key": ""}, tenant=ANA)


@pytest.mark.parametrize("has_address", [False, True])
async def test_a_secret_does_not_follow_to_another_address(has_address: bool, open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, CANARY, ANA, **({"base_url": "http://127.0.0.1:1"} if has_address else {}))
        elsewhere = {"base_url": "http://127.0.0.1:9"}
        with pytest.raises(InvalidInput, match="enter api_key again"):
            await sandbox.client.connections.set("studio", elsewhere, tenant=ANA)
        await sandbox.client.connections.set("studio", {**elsewhere, "api_key": "another"}, tenant=ANA)


@pytest.mark.parametrize(
    "values",
    [
        {"api_key": "a\r\nX-Injected: 1"},
        {"api_key": "nul\0"},
        {"api_key": "x" * 10_001},
        {"api_key": 7},
        {"api_key": "\ud800"},
        {"api_key": "good", "base_url": "http://169.254.169.254/latest"},
        {"api_key": "good", "base_url": "file:///etc/passwd"},
        {"api_key": "good", "unknown": "x"},
        {},
    ],
    ids=repr,
)
async def test_hostile_values_are_refused_without_being_repeated(values: Any, open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        with pytest.raises(InvalidInput) as raised:
            await sandbox.client.connections.set("studio", values, tenant=ANA)
        assert "Injected" not in str(raised.value)
        assert await rows(sandbox, "select from retoma.connections") == []


async def test_a_limited_client_reaches_only_connections_of_its_tenants(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, "key-of-all")
        await enter(sandbox, "key-of-bia", BIA)
        limited = sandbox.client.limit_to([ANA]).connections
        assert await limited.list() == []
        for call in (limited.get, limited.test, limited.delete):
            for tenant in (None, "*", BIA):
                with pytest.raises(AccessDenied):
                    await call("studio", tenant=tenant)
        with pytest.raises(AccessDenied):
            await limited.set("studio", {"api_key": "x"}, tenant=None)
        with pytest.raises(AccessDenied):
            await limited.rotate()
        with pytest.raises(NotFound):
            await limited.test("studio", tenant=ANA)


async def test_a_test_says_what_was_reached_or_what_is_wrong(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        client = sandbox.client.connections
        await enter(sandbox, f"wrong-{CANARY}", ANA)
        failed = await client.test("studio", tenant=ANA, by="Ana")
        assert failed.message == "the key [studio.api_key] was rejected: enter another one"
        shown = await client.get("studio", tenant=ANA)
        assert (shown.test_error, shown.tested_by) == (failed.message, "Ana")
        await enter(sandbox, "right", ANA)
        assert (await client.get("studio", tenant=ANA)).tested_at is None
        assert (await client.test("studio", tenant=ANA)).message == "reached the default address"
        assert (await client.get("studio", tenant=ANA)).test_error is None


async def test_another_key_does_not_decrypt(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, CANARY, ANA)
        found = await find(sandbox, ANA)
        with pytest.raises(ConnectionKeyMissing, match="not among the keys"):
            found.decrypt(Keyring.generate())


@pytest.mark.parametrize(
    "change",
    [
        "tenant = (select id from retoma.tenants where name = 'bia')",
        "tenant = null",
        "service = 'another'",
        "account = 'another'",
        """settings = '{"base_url": "https://attacker.example"}'""",
        "ciphertext = set_byte(ciphertext, 20, get_byte(ciphertext, 20) # 1)",
    ],
)
async def test_a_row_that_was_moved_or_changed_does_not_decrypt(change: str, open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await sandbox.client._core.tenants.get_or_create_id(BIA)
        await enter(sandbox, CANARY, ANA)
        await rows(sandbox, f"update retoma.connections set {change}")
        (found,) = await store.list_with_other_keys(sandbox.database, "none", 10)
        with pytest.raises(ConnectionKeyMissing, match="changed or moved"):
            found.decrypt(sandbox.keyring)


async def test_a_rotation_encrypts_everything_again_and_can_be_resumed(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retoma.client.connections.ROTATION_BATCH", 2)
    pipeline, builder = films(), Builder()
    old, new = generate_key(), generate_key()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        set_keys(sandbox, old)
        tenants = ["a", "b", "c", "d", "e"]
        for tenant in tenants:
            await enter(sandbox, f"key-of-{tenant}", tenant)
        set_keys(sandbox, f"{new},{old}")
        stop_after_one_batch(monkeypatch)
        with pytest.raises(ConnectionError):
            await sandbox.client.connections.rotate()
        monkeypatch.undo()
        assert await value(sandbox, "select count(distinct key_id)::int from retoma.connections") == 2
        assert [await render(sandbox, pipeline, tenant) for tenant in tenants] == [f"key-of-{each}" for each in tenants]
        assert await sandbox.client.connections.rotate() == 3
        set_keys(sandbox, new)
        assert [await render(sandbox, pipeline, tenant) for tenant in tenants] == [f"key-of-{each}" for each in tenants]
        assert await sandbox.client.connections.rotate() == 0


def set_keys(sandbox: Sandbox, text: str) -> None:
    sandbox.keyring = sandbox.client._core.keyring = Keyring(lambda: text)


def stop_after_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    replace, calls = store.replace_ciphertexts, list[int]()

    async def once(*values: Any) -> int:
        if calls:
            raise ConnectionError("killed")
        calls.append(1)
        return await replace(*values)

    monkeypatch.setattr(store, "replace_ciphertexts", once)


async def test_a_connection_that_changes_during_a_rotation_keeps_the_change(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, "before", ANA)
        (read,) = await store.list_with_other_keys(sandbox.database, "none", 10)
        await enter(sandbox, "after", ANA)
        assert await store.replace_ciphertexts(sandbox.database, "new", [(read, b"old values")]) == 0
        assert (await find(sandbox, ANA)).decrypt(sandbox.keyring) == {"api_key": "after"}


async def test_a_lost_key_is_replaced_by_entering_the_connection_again(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, "before", ANA)
        set_keys(sandbox, generate_key())
        with pytest.raises(ConnectionKeyMissing):
            await sandbox.client.connections.set("studio", {"voice": "Rosa"}, tenant=ANA)
        await enter(sandbox, "after", ANA)
        assert (await find(sandbox, ANA)).decrypt(sandbox.keyring) == {"api_key": "after"}


async def test_two_changes_at_once_are_both_kept(open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, "key", ANA)
        find_, calls = store.find, list[int]()

        async def find_and_lose_a_race(database: Any, key: ConnectionKey) -> Any:
            found = await find_(database, key)
            calls.append(1)
            if len(calls) == 1:
                await sandbox.client.connections.set("studio", {"voice": "Rosa"}, tenant=ANA)
            return found

        monkeypatch.setattr(store, "find", find_and_lose_a_race)
        changed = await sandbox.client.connections.set("studio", {"base_url": ""}, tenant=ANA)
        assert changed.settings == {"voice": "Rosa"}


async def test_secrets_are_masked_as_soon_as_they_are_decrypted(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, CANARY, ANA)
        assert mask_secrets(f"rejected {CANARY}") == "rejected [studio.api_key]"


async def test_an_error_of_a_job_does_not_repeat_its_key(open_sandbox: OpenSandbox) -> None:
    builder = Builder(error=lambda key: ValueError(f"the key {key} is odd"))
    pipeline = films()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, CANARY, ANA)
        run = await sandbox.run(pipeline, tenant=ANA)
        assert run.state == "failed"
        assert CANARY not in str(await rows(sandbox, "select e::text from retoma.events e"))
        assert CANARY not in str(await rows(sandbox, "select j::text from retoma.jobs j"))


async def test_a_job_of_another_process_does_not_repeat_its_key(open_sandbox: OpenSandbox) -> None:
    """A worker has not entered the secret itself: it learns it when it decrypts it."""
    builder = Builder(error=lambda key: ValueError(f"the key {key} is odd"))
    pipeline = films()
    async with open_sandbox(pipeline, **per_tenant(builder)) as sandbox:
        await enter(sandbox, CANARY, ANA)
        masking._SECRETS = masking._Secrets()
        await sandbox.run(pipeline, tenant=ANA)
        assert CANARY not in str(await rows(sandbox, "select e::text from retoma.events e"))


async def test_erasing_a_tenant_erases_its_connections(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        await enter(sandbox, "key-of-all")
        await enter(sandbox, "key-of-ana", ANA)
        await sandbox.client.retention.erase_tenant(ANA)
        assert [each.tenant for each in await sandbox.client.connections.list()] == [None]


async def test_accounts_of_a_service_are_separate(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(films(), **per_tenant(Builder())) as sandbox:
        for account in ("", "news"):
            await sandbox.client.connections.set("studio", {"api_key": f"key {account}"}, tenant=ANA, account=account)
        assert [each.account for each in await sandbox.client.connections.list(tenant=ANA)] == ["", "news"]
        await sandbox.client.connections.delete("studio", tenant=ANA, account="news")
        assert [each.account for each in await sandbox.client.connections.list(tenant=ANA)] == [""]


async def find(sandbox: Sandbox, tenant: str) -> store.EncryptedConnection:
    number = await sandbox.client._core.tenants.find_id(tenant)
    found = await store.find(sandbox.database, ConnectionKey(number, "studio"))
    assert found is not None
    return found


def test_the_key_of_an_embedded_database_is_a_private_file(tmp_path: Any) -> None:
    keyring = Keyring.from_settings(Settings(home=tmp_path / "home", database_url=None))
    encrypted = keyring.encrypt("secret", b"about")
    file = tmp_path / "home" / "connections.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Keyring.from_settings(Settings(home=tmp_path / "home")).decrypt(encrypted, b"about") == "secret"


def test_a_database_of_its_own_needs_a_key_in_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    settings = Settings(home=tmp_path, database_url="postgresql://host/db")
    with pytest.raises(ConnectionKeyMissing, match="set RETOMA_CONNECTIONS_KEY"):
        _ = Keyring.from_settings(settings).current_id
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_added_to_its_file_needs_no_restart(tmp_path: Any) -> None:
    file, old, new = tmp_path / "keys", generate_key(), generate_key()
    file.write_text(old)
    settings = Settings(connections_key_file=file)
    running = Keyring.from_settings(settings)
    assert running.current_id
    file.write_text(f"{new}, {old}\n")
    assert running.decrypt(Keyring.from_settings(settings).encrypt("secret", b""), b"") == "secret"


@pytest.mark.parametrize("text", ["", "short", "not base64!", f"{'A' * 43}=,"])
def test_an_invalid_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConnectionKeyMissing, match="32 bytes in base64") as raised:
        _ = Keyring(lambda: text).current_id
    assert not text or text.split(",")[0] not in str(raised.value).replace("RETOMA", "")


def test_the_same_text_is_encrypted_differently_each_time() -> None:
    keyring = Keyring.generate()
    assert len({keyring.encrypt("secret", b"").ciphertext for _ in range(100)}) == 100
