"""What a password is good for: never for more than the sender of its link could have granted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from retoma.client import Client
from retoma.engine import accounts
from retoma.errors import AccessDenied, Conflict, NotFound
from retoma.records import Access, Actor, ActorKind, Scope
from retoma.store import people
from retoma.store.database import Database
from retoma.store.tenants import Tenants
from tests.conftest import empty_database
from tests.server.people import PASSWORD

BO, EVE = "bo@example.com", Actor(ActorKind.PERSON, "9", "Eve")
BOTH = ("blog", "shop")


@pytest.fixture
async def client(database: Database) -> Client:
    await empty_database(database)
    return Client(None, database)


def limit(client: Client, tenants: Sequence[str] | None, actor: Actor = EVE) -> Client:
    """Return the client of an administrator of these tenants; None: of all."""
    acting = client.acting_as(actor)
    return acting if tenants is None else acting.limit_to(tenants)


async def log_in(client: Client, email: str = BO) -> str | None:
    """Return the token of a session, or None if the password is wrong."""
    person = await accounts.check_password(client.database, email, PASSWORD)
    if person is None:
        return None
    return await accounts.open_session(client.database, person, address=None, user_agent=None)


# By whom an account in the blog was reset, and then which role the person is given where.
CASES = [
    (("blog",), "blog", "administrator", True),
    (("blog",), "shop", "viewer", False),
    (("blog",), None, "viewer", False),
    (BOTH, "blog", "administrator", True),
    (BOTH, "shop", "administrator", True),
    (BOTH, None, "viewer", False),
    (None, "shop", "administrator", True),
    (None, None, "administrator", True),
]


@pytest.mark.parametrize(("tenants", "tenant", "role", "survives"), CASES)
async def test_a_password_reaches_no_role_that_its_giver_could_not_give(
    client: Client, tenants: Sequence[str] | None, tenant: str | None, role: str, survives: bool
) -> None:
    for name in BOTH:
        await Tenants(client.database).get_or_create_id(name)
    await client.people.create("Bo", BO, role="viewer", tenant="blog")
    link = await limit(client, tenants).people.create_link(BO)
    await accounts.use_link(client.database, link.token, PASSWORD)
    token = await log_in(client)
    assert token is not None
    await client.people.set_role(BO, role, tenant=tenant)
    assert (await log_in(client) is not None) is survives
    assert (await accounts.find_session(client.database, token) is not None) is survives
    (entry,) = await client.audit.list(action="person.set_role")
    assert (entry.after or {}).get("ended") == (None if survives else ["password", "sessions"])


@pytest.mark.parametrize(("tenants", "tenant", "role", "survives"), CASES)
async def test_an_open_link_reaches_no_role_that_its_giver_could_not_give(
    client: Client, tenants: Sequence[str] | None, tenant: str | None, role: str, survives: bool
) -> None:
    for name in BOTH:
        await Tenants(client.database).get_or_create_id(name)
    link = await limit(client, tenants).people.invite("Bo", BO, role="viewer", tenant="blog")
    await client.people.set_role(BO, role, tenant=tenant)
    assert (await accounts.use_link(client.database, link.token, PASSWORD) is not None) is survives


async def test_a_promotion_needs_a_new_link(client: Client) -> None:
    old = await limit(client, ["blog"]).people.invite("Bo", BO, role="viewer", tenant="blog")
    await accounts.use_link(client.database, old.token, "the password that Eve knows")
    await client.people.set_role(BO, "administrator")
    assert not (await client.people.get(BO)).has_password
    new = await client.people.create_link(BO)
    await accounts.use_link(client.database, new.token, PASSWORD)
    await client.people.set_role(BO, "viewer", tenant="shop")
    assert await log_in(client) is not None


async def test_a_password_that_a_person_changes_is_good_for_no_more(client: Client) -> None:
    """Eve can change the password that she has set, in place of the person."""
    link = await limit(client, ["blog"]).people.invite("Bo", BO, role="viewer", tenant="blog")
    bo = await accounts.use_link(client.database, link.token, "the password that Eve knows")
    assert bo is not None
    await accounts.set_password(client.database, bo.id, PASSWORD)
    await client.people.set_role(BO, "viewer")
    assert await log_in(client) is None


async def test_a_lower_role_ends_nothing(client: Client) -> None:
    await client.people.create("Bo", BO, role="operator", tenant="blog")
    link = await client.acting_as(EVE, Access(frozenset({*Scope} - {Scope.ADMIN}))).people.create_link(BO)
    await accounts.use_link(client.database, link.token, PASSWORD)
    await client.people.set_role(BO, "viewer", tenant="blog")
    assert await log_in(client) is not None


async def test_an_administrator_of_one_tenant_takes_in_nobody_of_others(client: Client) -> None:
    """With a role in the blog, Eve could reset the account and act under that name."""
    await client.people.create("Bo", BO)
    await client.people.create("Cal", "cal@example.com", role="viewer", tenant="shop")
    for email in (BO, "cal@example.com", "nobody@example.com"):
        with pytest.raises(NotFound, match=r"has the address .* and a role here"):
            await limit(client, ["blog"]).people.set_role(email, "viewer", tenant="blog")
        with pytest.raises(NotFound):
            await limit(client, ["blog"]).people.create_link(email)


async def test_an_administrator_of_one_tenant_gives_a_role_back(client: Client) -> None:
    eve, other = limit(client, ["blog"]), limit(client, ["blog"], Actor(ActorKind.PERSON, "10", "Fay"))
    await eve.people.invite("Bo", BO, role="viewer", tenant="blog")
    await eve.people.remove_role(BO, tenant="blog")
    assert [each.email for each in await eve.people.list()] == [BO]
    assert await other.people.list() == []
    with pytest.raises(NotFound):
        await other.people.set_role(BO, "viewer", tenant="blog")
    await eve.people.set_role(BO, "viewer", tenant="blog")
    assert [each.email for each in await other.people.list()] == [BO]


@pytest.mark.parametrize("tenant", [None, "blog"])
async def test_a_key_gives_and_resets_no_more_than_it_may_do(client: Client, tenant: str | None) -> None:
    scopes = frozenset({Scope.PEOPLE_WRITE, Scope.RUNS_READ})
    access = Access(scopes) if tenant is None else Access(by_tenant={tenant: scopes})
    key = client.acting_as(EVE, access) if tenant is None else client.acting_as(EVE, access).limit_to([tenant])
    await client.people.create("Ana", "ana@example.com", role="administrator", tenant="blog")
    await key.people.invite("Bo", BO, role="viewer", tenant="blog")
    await key.people.create_link(BO)
    for refused in (
        key.people.set_role(BO, "reviewer", tenant="blog"),
        key.people.invite("Cal", "cal@example.com", role="administrator", tenant="blog"),
        key.people.set_role("ana@example.com", "viewer", tenant="blog"),
        key.people.remove_role("ana@example.com", tenant="blog"),
        key.people.create_link("ana@example.com"),
        key.people.disable("ana@example.com"),
        key.people.end_sessions("ana@example.com"),
        key.people.remove_second_factor("ana@example.com"),
        key.people.unlink("ana@example.com"),
    ):
        with pytest.raises(AccessDenied):
            await refused
    assert [each.email for each in await client.people.list()] == ["ana@example.com", BO]


async def add_administrator(client: Client, name: str, *, can_log_in: bool = True) -> int:
    password = PASSWORD if can_log_in else None
    return (await client.people.create(name, f"{name}@example.com", role="administrator", password=password)).id


@pytest.mark.parametrize("action", ["disable", "remove_role", "set_role"])
async def test_somebody_who_was_only_invited_is_no_other_administrator(client: Client, action: str) -> None:
    await add_administrator(client, "ana")
    await add_administrator(client, "bo", can_log_in=False)
    arguments = ("ana@example.com", "viewer") if action == "set_role" else ("ana@example.com",)
    with pytest.raises(Conflict, match="only administrator of all tenants who can log in"):
        await getattr(client.people, action)(*arguments)
    assert await client.audit.list(action=f"person.{action}") == []
    await getattr(client.people, action)(*(BO, *arguments[1:]))


@pytest.mark.parametrize("second", ["disable_person", "remove_role"])
async def test_of_two_administrators_who_are_removed_at_once_one_stays(client: Client, second: str) -> None:
    ana, bo = await add_administrator(client, "ana"), await add_administrator(client, "bo")
    async with client.database.connection() as one, client.database.connection() as other:
        transaction = one.transaction()
        await transaction.start()
        assert await one.fetchval("select retoma.disable_person($1)", ana) == "changed"
        arguments = (bo,) if second == "disable_person" else (bo, None)
        marks = ", ".join(f"${number}" for number in range(1, len(arguments) + 1))
        waiting = asyncio.create_task(other.fetchval(f"select retoma.{second}({marks})", *arguments))
        await wait_for_lock(client, other.get_server_pid())
        await transaction.commit()
        assert await waiting == "last_administrator"
    assert await people.has_administrator(client.database)


async def wait_for_lock(client: Client, process: int) -> None:
    """Wait until the connection waits for another one."""
    async with asyncio.timeout(10), client.database.connection() as connection:
        blocked = "select cardinality(pg_blocking_pids($1)) > 0"
        while not await connection.fetchval(blocked, process):  # noqa: ASYNC110  (it happens in the server)
            await asyncio.sleep(0.01)
