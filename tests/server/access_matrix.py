"""Who may do what: every kind of caller with every route and page. The expectations follow from one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from retoma.engine import accounts
from retoma.records import Role, Scope
from retoma.server.pages.page import Page
from retoma.server.sessions import CSRF_HEADER, csrf_token
from retoma.store import people
from tests.server.api import Api
from tests.server.people import ensure_administrator

OWN, OTHER = "tenant-of-the-objects", "tenant-of-strangers"
# The lowest role that has a scope, and whether it must be held in all tenants.
ROLES: dict[Scope, tuple[Role, bool]] = {
    Scope.RUNS_READ: (Role.VIEWER, False),
    Scope.REVIEWS_WRITE: (Role.REVIEWER, False),
    Scope.RUNS_WRITE: (Role.OPERATOR, False),
    Scope.DELIVERIES_READ: (Role.OPERATOR, False),
    Scope.DELIVERIES_WRITE: (Role.OPERATOR, False),
    Scope.POOLS_READ: (Role.OPERATOR, False),
    Scope.POOLS_WRITE: (Role.OPERATOR, True),
    Scope.METRICS_READ: (Role.OPERATOR, True),
    Scope.SCHEDULES_WRITE: (Role.ADMINISTRATOR, False),
    Scope.BUDGETS_WRITE: (Role.ADMINISTRATOR, False),
    Scope.CONNECTIONS_WRITE: (Role.ADMINISTRATOR, False),
    Scope.PEOPLE_WRITE: (Role.ADMINISTRATOR, False),
    Scope.AUDIT_READ: (Role.ADMINISTRATOR, False),
    Scope.ADMIN: (Role.ADMINISTRATOR, True),
}
ORDER = [Role.VIEWER, Role.REVIEWER, Role.OPERATOR, Role.ADMINISTRATOR]


@dataclass(frozen=True)
class Caller:
    """`roles` are those of a person, and `scopes` those of a key, by tenant; None is all tenants."""

    name: str
    roles: Mapping[str | None, Role] = field(default_factory=dict)
    scopes: Mapping[str | None, frozenset[Scope]] = field(default_factory=dict)
    token: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.name

    def may(self, scope: Scope, tenant: str | None) -> bool:
        """Return whether the caller has the scope in the tenant; None: in all tenants."""
        return any(where in (None, tenant) and self._includes(where, scope) for where in {*self.roles, *self.scopes})

    def may_anywhere(self, scope: Scope) -> bool:
        return any(self._includes(where, scope) for where in {*self.roles, *self.scopes})

    def _includes(self, where: str | None, scope: Scope) -> bool:
        if where in self.scopes:
            return bool(self.scopes[where] & {scope, Scope.ADMIN})
        least, only_in_all = ROLES[scope]
        return ORDER.index(self.roles[where]) >= ORDER.index(least) and (where is None or not only_in_all)


@dataclass(frozen=True)
class Target:
    """A request. `names_object`: its path names something of the tenant OWN. `scope` is None if any caller may send it.

    `names_tenant`: it says itself that it is about OWN, so there is nothing to hide. `only_all`: the application
    requires access to all tenants. `tenant` is the one in place of OWN. `gives` is what the role includes that the
    request gives, or that the account has on which it acts: nobody may give more than they have.
    """

    method: str
    path: str
    address: str
    scope: Scope | None
    names_object: bool
    is_page: bool = False
    body: Any = None
    fields: Mapping[str, str] = field(default_factory=dict)
    names_tenant: bool = False
    only_all: bool = False
    tenant: str = OWN
    gives: Scope | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def expect(caller: Caller, target: Target) -> str:
    """Return `denied`, `hidden`, `allowed`, or `visible`: the caller may learn what is missing, but not act."""
    if target.scope is None:
        return "allowed"
    if not caller.may_anywhere(target.scope) or (target.names_tenant and not caller.may(target.scope, target.tenant)):
        return "denied"
    if target.only_all and not caller.may(target.scope, None):
        return "denied"
    if not target.names_object or caller.may(target.scope, target.tenant):
        return "allowed" if target.gives is None or caller.may(target.gives, target.tenant) else "denied"
    return "visible" if caller.may(Scope.RUNS_READ, target.tenant) else "hidden"


def describe(answer: httpx2.Response, target: Target) -> str:
    """A page answers 401 to a wrong password or code in its form, which the caller may send."""
    if answer.status_code == 403 or (answer.status_code == 401 and not target.is_page):
        return "denied"
    if answer.status_code == 303 and answer.headers["location"].startswith("/login"):
        return "not logged in"
    return "hidden" if answer.status_code == 404 else "allowed"


async def send(api: Api, caller: Caller, target: Target) -> httpx2.Response:
    headers = {"Accept": "text/html"} if target.is_page else {}
    if caller.token is not None:
        headers |= {"Cookie": f"retoma={caller.token}", "Sec-Fetch-Site": "same-origin"}
    options: dict[str, Any] = {}
    if target.is_page and target.method == "POST":
        options["data"] = {**target.fields, "csrf": csrf_token(caller.token or "")}
    elif not target.is_page and target.method not in ("GET", "HEAD"):
        headers |= {} if caller.token is None else {CSRF_HEADER: csrf_token(caller.token)}
        options["json"] = target.body
    api.forget_cookies()
    return await api.call(target.method, target.address, key=caller.key, headers=headers, **options)


async def check(api: Api, callers: Iterable[Caller], targets: Iterable[Target], secret: str) -> int:
    """Send every request as every caller, and compare the answers with the table. Return how many were sent.

    `secret` is a text in the data of OWN that nobody without access to OWN may be shown.
    """
    count, wrong = 0, []
    for target in targets:
        for caller in callers:
            if target.is_page and caller.key is not None:
                continue  # pages take no keys
            answer, expected = await send(api, caller, target), expect(caller, target)
            count += 1
            found = describe(answer, target)
            # What does not exist is hidden from everybody, and an object may be gone after somebody has acted on it.
            is_right = found == expected or (expected in ("allowed", "visible") and found == "hidden")
            is_right = is_right or (expected == "visible" and found == "denied")
            is_right = is_right or (expected == "denied" and target.gives is not None and found == "hidden")
            if not is_right or answer.status_code >= 500:
                wrong.append(f"{target} as {caller}: {expected} expected, {answer.status_code} {answer.text[:200]!r}")
            sees = any(caller.may(scope, target.tenant) for scope in (Scope.RUNS_READ, target.scope or Scope.RUNS_READ))
            if secret in answer.text and not sees:
                wrong.append(f"{target} as {caller}: shows data of another tenant")
    assert wrong == [], "\n".join(wrong[:20])
    return count


async def make_people(api: Api, own: str = OWN) -> list[Caller]:
    """Every role in the tenant of the objects, in OTHER and in all tenants; a mixture; and nobody's role."""
    wanted: dict[str, dict[str | None, Role]] = {
        f"{role}-{where}": {tenant: role}
        for role in ORDER
        for where, tenant in (("here", own), ("elsewhere", OTHER), ("everywhere", None))
    }
    wanted |= {"sees-all-acts-elsewhere": {None: Role.VIEWER, OTHER: Role.OPERATOR}, "nobody": {}}
    return [await make_person(api, name, roles) for name, roles in wanted.items()]


async def make_person(api: Api, name: str, roles: Mapping[str | None, Role]) -> Caller:
    person = await api.client.people.create(name, f"{name}@example.com")
    for tenant, role in roles.items():
        await api.client.people.set_role(person.email, role, tenant=tenant)
    token = await accounts.open_session(api.client.database, person, address=None, user_agent=None)
    return Caller(name, roles=roles, token=token)


async def make_disabled(api: Api) -> Caller:
    """An administrator of all tenants who was disabled, in a browser that was logged in."""
    await ensure_administrator(api.client)  # the last one cannot be disabled
    caller = await make_person(api, "disabled", {None: Role.ADMINISTRATOR})
    person = await api.client.people.get("disabled@example.com")
    token = caller.token
    await people.disable_person(api.client.database, person.id)
    return Caller("disabled", token=token)


async def make_keys(api: Api) -> list[Caller]:
    """A key of each scope for all tenants, for OWN and for OTHER."""
    cross = {Scope.POOLS_WRITE, Scope.METRICS_READ, Scope.ADMIN}
    return [
        Caller(
            f"key {scope} {tenant}", scopes={tenant: frozenset({scope})}, key=await api.make_key(scope, tenant=tenant)
        )
        for tenant in (None, OWN, OTHER)
        for scope in Scope
        if tenant is None or scope not in cross
    ]


def list_page_targets(
    pages: Iterable[Page],
    things: Mapping[str, str],
    fields: Mapping[str, Mapping[str, str]],
) -> list[Target]:
    """Return a request for each handler of each page that needs a login. `things` are the objects by path parameter."""
    found = []
    for page in pages:
        methods = [("GET", page.show), ("POST", page.submit)]
        for method in [name for name, handler in methods if handler is not None and not page.is_public]:
            address = re.sub(r"\{(\w+)\}", lambda match: things[match[1]], page.path)
            scope = page.get_scope(method)
            found.append(
                Target(
                    method,
                    page.path,
                    address,
                    scope,
                    names_object="{" in page.path.replace("{service}", ""),  # a service is not of a tenant
                    is_page=True,
                    fields=fields.get(page.path, {}),
                    names_tenant=fields.get(page.path, {}).get("tenant") == OWN and method == "POST",
                )
            )
    return found
