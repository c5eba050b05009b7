"""`client.people`: accounts, roles, invitations and sessions."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from retoma.client.audit_values import keep_set, list_changes
from retoma.client.core import Namespace
from retoma.client.validation import check_name, check_time_zone
from retoma.define.definition_errors import suggest_name
from retoma.engine import accounts
from retoma.errors import AccessDenied, Conflict, InvalidInput, NotFound
from retoma.logs import get_logger
from retoma.records import AuditAction, LinkPurpose, NewAccountLink, Person, PersonSession, Role, RoleGrant
from retoma.store import people, person_sessions, second_factor, single_sign_on
from retoma.store.database import Database
from retoma.terminal import remove_unsafe
from retoma.translations import LANGUAGES, N_

log = get_logger(__name__)


class People(Namespace):
    """People are named by their e-mail addresses.

    A client that is limited to some tenants sees the people with a role there and those whom its actor invited, and
    gives them roles there. Nobody gives or takes a role that includes more than they may do themselves, or resets an
    account that has such a role.
    """

    async def create(
        self,
        name: str,
        email: str,
        *,
        role: Role | str | None = None,
        tenant: str | None = None,
        password: str | None = None,
        language: str | None = None,
        time_zone: str | None = None,
    ) -> Person:
        """Create an account, with a role in one tenant or in all. Without a password the person needs a link.

        Raise Conflict if somebody has this address.
        """
        return await self._create(AuditAction.PERSON_CREATE, name, email, role, tenant, password, language, time_zone)

    async def _create(
        self,
        action: AuditAction,
        name: str,
        email: str,
        role: Role | str | None,
        tenant: str | None,
        password: str | None,
        language: str | None,
        time_zone: str | None,
    ) -> Person:
        wanted = None if role is None else parse_role(role)
        owner = await self._get_tenant(tenant)
        address = accounts.normalize_email(email)
        _check_profile(name, language, time_zone)
        if wanted is not None:
            self._require_grantable(RoleGrant(tenant, wanted))
        await self._check_own_name(name)
        if password is not None:
            accounts.check_password_length(password)
        recording = self._recording(
            "add_person",
            action,
            lambda rows: str(rows[0]["id"]),
            tenant=owner,
            after=keep_set(name=name.strip(), email=address, role=wanted, tenant=tenant),
        )
        added = await people.add_person(
            recording,
            name=name.strip(),
            email=address,
            language=language,
            time_zone=time_zone,
            invited_by=self._actor_key,
        )
        if added is None:
            message = N_(
                "somebody already has the address %(address)s: give that person a role instead, or ask an "
                "administrator of all tenants to"
            )
            raise Conflict(message, address=address)
        if wanted is not None:
            await people.set_role(self._database, added.id, owner, wanted)
        if password is not None:
            await accounts.set_password(self._database, added.id, password, grantable=await self._core.list_grantable())
        log.info("person_created", message="an account was created", person=added.id, by=self._get_author(None))
        return await self._reload(added)

    async def invite(
        self, name: str, email: str, *, role: Role | str, tenant: str | None = None, language: str | None = None
    ) -> NewAccountLink:
        """Create an account and a link with which the person sets a password. It works once, for seven days."""
        person = await self._create(AuditAction.PERSON_INVITE, name, email, role, tenant, None, language, None)
        grantable = await self._core.list_grantable()
        return await accounts.create_link(self._database, person, LinkPurpose.INVITE, self._get_author(None), grantable)

    async def create_link(self, email: str) -> NewAccountLink:
        """Create a link with which a person sets a new password: an invitation if there is none yet, otherwise a reset.

        It works once: an invitation for seven days, a reset for 24 hours. Earlier links of the person stop working.
        """
        person = await self._get_own(email)
        if person.disabled_at is not None:
            raise Conflict(N_("%(email)s is disabled: enable the account first"), email=person.email)
        return await self._create_link(person, LinkPurpose.RESET if person.has_password else LinkPurpose.INVITE)

    async def set_role(self, email: str, role: Role | str, *, tenant: str | None = None) -> Person:
        """Give a person this role in the tenant, in place of the one there; without a tenant, in all tenants.

        It applies at once. If the person who handed out the password or open link could not grant this role, the
        password, sessions, links and second factor end: create a new link. Raise Conflict if nobody would be left who
        is administrator of all tenants.
        """
        wanted, owner = parse_role(role), await self._get_tenant(tenant)
        person = await self._find(email)
        self._require_grantable(RoleGrant(tenant, wanted), *_list_held(person, tenant))
        recording = self._recording_role("set_role", AuditAction.PERSON_SET_ROLE, person, tenant, owner, wanted)
        _require_another(person, await people.set_role(recording, person.id, owner, wanted))
        return await self._reload(person)

    async def remove_role(self, email: str, *, tenant: str | None = None) -> Person:
        """Take away the role in the tenant; without a tenant, the one in all tenants."""
        owner = await self._get_tenant(tenant)
        person = await self._find(email)
        self._require_grantable(*_list_held(person, tenant))
        recording = self._recording_role("remove_role", AuditAction.PERSON_REMOVE_ROLE, person, tenant, owner, None)
        _require_another(person, await people.remove_role(recording, person.id, owner))
        return await self._reload(person)

    async def disable(self, email: str) -> Person:
        """Disable an account: its sessions end and nobody can log in with it. Its history keeps the name."""
        person = await self._get_own(email)
        recording = self._recording_person("disable_person", AuditAction.PERSON_DISABLE, person, applies=_has_changed)
        _require_another(person, await people.disable_person(recording, person.id))
        return await self._reload(person)

    async def enable(self, email: str) -> Person:
        person = await self._get_own(email)
        await people.enable_person(
            self._recording_person("enable_person", AuditAction.PERSON_ENABLE, person), person.id
        )
        return await self._reload(person)

    async def update_profile(
        self, email: str, *, name: str, language: str | None = None, time_zone: str | None = None
    ) -> Person:
        """Change the name, the language and the time zone. Without one, the browser's is used."""
        person = await self._get_own(email)
        _check_profile(name, language, time_zone)
        if _fold_name(name) != _fold_name(person.name):
            await self._check_own_name(name)
        before, after = list_changes(
            {"name": person.name, "language": person.language, "time_zone": person.time_zone},
            {"name": name.strip(), "language": language, "time_zone": time_zone},
        )
        recording = self._recording_person(
            "update_profile", AuditAction.PERSON_UPDATE, person, before=before, after=after
        )
        await people.update_profile(recording, person.id, name=name.strip(), language=language, time_zone=time_zone)
        return await self._reload(person)

    async def list_sessions(self, email: str) -> list[PersonSession]:
        """Return the active sessions of a person, the last used first."""
        return await person_sessions.list_sessions(self._database, (await self._get_own(email)).id)

    async def end_sessions(self, email: str, *, session: int | None = None) -> int:
        """End one session of a person, or all. Return how many ended."""
        person = await self._get_own(email)
        recording = self._recording_person(
            "end_sessions_of",
            AuditAction.PERSON_END_SESSIONS,
            person,
            after=lambda rows: {"email": person.email, "sessions": len(rows)},
        )
        return await person_sessions.end_sessions(recording, person.id, id=session)

    async def remove_second_factor(self, email: str) -> Person:
        """Remove the second factor and the recovery codes of a person, who can then set it up again."""
        person = await self._get_own(email)
        recording = self._recording_person(
            "remove_second_factor", AuditAction.PERSON_REMOVE_SECOND_FACTOR, person, applies=bool
        )
        await second_factor.remove(recording, person.id)
        return await self._reload(person)

    async def unlink(self, email: str) -> Person:
        """Forget which account of the identity provider is this person's. The next login there links it again."""
        person = await self._get_own(email)
        recording = self._recording_person("unlink_person", AuditAction.PERSON_UNLINK, person, applies=bool)
        await single_sign_on.unlink_person(recording, person.id)
        return await self._reload(person)

    async def get(self, email: str) -> Person:
        """Return the person with this address. Raise NotFound without one, which names the nearest."""
        return self._hide_other_roles(await self._find(email))

    async def list(self, *, include_disabled: bool = False) -> list[Person]:
        """Return people by name."""
        found = await self._list_visible(include_disabled=include_disabled)
        return [self._hide_other_roles(each) for each in found]

    async def _find(self, email: str) -> Person:
        """Return the person with all roles, if this client sees any of them or its actor invited the person."""
        address = accounts.normalize_email(email)
        found = await self._list_visible(email=address, include_disabled=True)
        if not found:
            nearest = get_close_matches(address, [each.email for each in await self.list()], n=1)
            where = "has the address {} and a role here" if self._core.limit else "has the address {}"
            hint = "".join(f"; did you mean {near}?" for near in nearest)
            raise NotFound(f"nobody {where.format(address)}{hint}")
        return found[0]

    async def _list_visible(self, **filters: Any) -> Sequence[Person]:
        tenants = await self._core.find_tenants()
        return await people.list_people(self._database, tenants=tenants, invited_by=self._actor_key, **filters)

    @property
    def _actor_key(self) -> str:
        return f"{self._core.actor.kind}:{self._core.actor.id}"

    def _hide_other_roles(self, person: Person) -> Person:
        """Leave out roles in tenants that this client may not act on."""
        roles = [grant for grant in person.roles if grant.tenant is None or self._core.may_act_on(grant.tenant)]
        return replace(person, roles=tuple(roles))

    async def _get_own(self, email: str) -> Person:
        """Return a person whose account this client may change: its actor could give all of the person's roles."""
        person = await self._find(email)
        if not all(self._core.may_grant(grant) for grant in person.roles):
            message = N_(
                "%(email)s has roles in other tenants, or roles with more permissions than yours: only someone who can "
                "grant these roles can do this"
            )
            raise AccessDenied(message, email=person.email)
        return person

    def _require_grantable(self, *grants: RoleGrant) -> None:
        for grant in grants:
            if not self._core.may_grant(grant):
                raise AccessDenied(
                    N_("the role %(role)s has more permissions than yours, so you cannot grant or remove it"),
                    role=grant.role,
                )

    async def _check_own_name(self, name: str) -> None:
        """Raise Conflict if somebody has this name: the history of decisions shows names."""
        everybody = await people.list_people(self._database)
        if _fold_name(name) in {_fold_name(each.name) for each in everybody}:
            raise Conflict(
                N_("somebody is already called %(name)s: add what tells the two apart, such as a second surname"),
                name=name.strip(),
            )

    async def _get_tenant(self, tenant: str | None) -> int | None:
        check_name("tenant", tenant)
        if tenant is None:
            self._core.require_all_tenants()
            return None
        return await self._core.get_or_create_tenant(tenant)

    async def _create_link(self, person: Person, purpose: LinkPurpose) -> NewAccountLink:
        recording = self._recording_person(
            "add_link",
            AuditAction.PERSON_INVITE if purpose is LinkPurpose.INVITE else AuditAction.PERSON_RESET_PASSWORD,
            person,
        )
        grantable = await self._core.list_grantable()
        return await accounts.create_link(recording, person, purpose, self._get_author(None), grantable)

    def _recording_role(
        self,
        statement: str,
        action: AuditAction,
        person: Person,
        tenant: str | None,
        owner: int | None,
        role: Role | None,
    ) -> Database:
        held = next((grant.role for grant in person.roles if grant.tenant == tenant), None)
        about = {"email": person.email, "tenant": tenant}

        def describe(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            ended = rows[0].get("ended") or []
            return about | {"role": role} | ({"ended": ended} if ended else {})

        return self._recording_person(
            statement,
            action,
            person,
            tenant=owner,
            before=about | {"role": held},
            after=describe,
            applies=_has_changed,
        )

    def _recording_person(
        self, statement: str, action: AuditAction, person: Person, after: Any = None, **details: Any
    ) -> Database:
        """Record a change of an account, which always happens unless `applies` says otherwise."""
        details = {"applies": lambda _: True} | details
        return self._recording(statement, action, person.id, after=after or {"email": person.email}, **details)

    async def _reload(self, person: Person) -> Person:
        found = await people.find_person(self._database, person.id)
        assert found is not None
        return self._hide_other_roles(found)


def parse_role(role: Role | str) -> Role:
    """Return the role. Raise InvalidInput for an unknown one, naming the nearest."""
    try:
        return Role(role)
    except ValueError:
        raise InvalidInput(f"there is no role {role!r:.40}; {suggest_name(role, [*map(str, Role)])}") from None


def _fold_name(name: str) -> str:
    """Return the name without what readers do not tell apart: case, spaces, accents and forms of the same letter."""
    letters = unicodedata.normalize("NFKD", name.casefold())  # noqa: TID251  (a name is short)
    return " ".join("".join(each for each in letters if not unicodedata.combining(each)).casefold().split())


def _list_held(person: Person, tenant: str | None) -> list[RoleGrant]:
    return [grant for grant in person.roles if grant.tenant == tenant]


def _has_changed(rows: Sequence[Mapping[str, Any]]) -> bool:
    return bool(rows[0]["outcome"] == "changed")


def _require_another(person: Person, is_changed: bool) -> None:
    if not is_changed:
        message = N_("%(email)s is the only administrator of all tenants who can log in: make somebody else one first")
        raise Conflict(message, email=person.email)


def _check_profile(name: str, language: str | None, time_zone: str | None) -> None:
    check_name("name", name.strip())
    if remove_unsafe(name) != name:
        raise InvalidInput(N_("a name has no control characters and no invisible ones"))
    if language is not None and language not in LANGUAGES:
        raise InvalidInput(f"a language is one of {', '.join(LANGUAGES)}, not {language!r:.40}")
    if time_zone is not None:
        check_time_zone(time_zone)
