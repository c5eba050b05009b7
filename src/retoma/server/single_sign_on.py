"""Single sign-on: send a browser to the identity provider, and find the person with whom it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from retoma.client import Client
from retoma.errors import DefinitionError
from retoma.file_links import build_url
from retoma.logs import get_logger
from retoma.records import Person, Role
from retoma.server.oidc import Identity, SignOnFailed, SignOnFailure, map_roles, parse_role_mapping
from retoma.server.signed_values import SignedValues
from retoma.settings import Settings
from retoma.store import people, single_sign_on
from retoma.store.tenants import Tenants

if TYPE_CHECKING:
    from retoma.server.oidc.provider import OidcProvider

log = get_logger(__name__)
CALLBACK_PATH = "/login/oidc/callback"
PURPOSE = "single sign-on"
TIME_TO_LOG_IN = timedelta(minutes=15)  # at the provider
_SUCCESSES = ("known", "linked", "created")


class SignedOn(NamedTuple):
    """`to` is the path that the browser asked for."""

    person: Person
    to: str


class SingleSignOn:
    """The provider of the settings. What the browser keeps meanwhile is signed, so any server can finish the login."""

    def __init__(self, client: Client, settings: Settings, provider: OidcProvider) -> None:
        self.name = settings.oidc_name
        self._client = client
        self._provider = provider
        self._signed = SignedValues(client)
        self._may_create = settings.oidc_create_people
        self._role_claim = settings.oidc_role_claim
        self._mapping = parse_role_mapping(settings.oidc_roles)
        self._tenants = Tenants(client.database)
        self._redirect_uri = build_url(settings.public_url, CALLBACK_PATH)

    async def begin(self, to: str) -> tuple[str, str]:
        """Return the address at the provider, and the value that the browser keeps. Raise SignOnFailed."""
        from retoma.server.oidc.provider import LoginRequest

        request = LoginRequest()
        url = await self._provider.build_login_url(request, self._redirect_uri)
        return url, await self._signed.sign(PURPOSE, {**vars(request), "to": to}, TIME_TO_LOG_IN)

    async def finish(self, kept: str | None, query: Mapping[str, str], address: str | None) -> SignedOn:
        """Return who came back from the provider, to a browser at this address. Raise SignOnFailed."""
        from retoma.server.oidc.provider import LoginRequest

        values = await self._signed.read(PURPOSE, kept)
        if values is None:
            raise SignOnFailed(SignOnFailure.NOT_STARTED_HERE, "the browser has no login in progress")
        to = str(values.pop("to"))
        identity = await self._provider.fetch_identity(LoginRequest(**values), query, self._redirect_uri)
        return SignedOn(await self._find_person(identity, address), to)

    async def _find_person(self, identity: Identity, address: str | None) -> Person:
        outcome, number = await single_sign_on.sign_on(
            self._client.database,
            issuer=identity.issuer,
            subject=identity.subject,
            email=identity.email,
            is_email_verified=identity.is_email_verified,
            name=identity.name,
            may_create=self._may_create,
            roles=await self._list_roles(identity),
            address=address,
        )
        if outcome not in _SUCCESSES or number is None:
            raise SignOnFailed(SignOnFailure(outcome), f"subject {identity.subject!r:.200}", person=number)
        if outcome != "known":
            log.info("person_signed_on", message="first single sign-on of this person", person=number, outcome=outcome)
        person = await people.find_person(self._client.database, number)
        assert person is not None
        return person

    async def _list_roles(self, identity: Identity) -> list[tuple[int | None, Role]] | None:
        if self._role_claim is None:
            return None
        grants = map_roles(identity.claims, self._role_claim, self._mapping)
        return [(await self._find_tenant(grant.tenant), grant.role) for grant in grants]

    async def _find_tenant(self, tenant: str | None) -> int | None:
        return None if tenant is None else await self._tenants.get_or_create_id(tenant)


def open_single_sign_on(client: Client, settings: Settings) -> SingleSignOn | None:
    """Return the single sign-on that is configured, or None. Raise DefinitionError if its settings are incomplete."""
    if settings.oidc_issuer is None:
        return None
    if settings.oidc_client_id is None or settings.public_url is None:
        missing = "RETOMA_OIDC_CLIENT_ID" if settings.oidc_client_id is None else "RETOMA_PUBLIC_URL"
        raise DefinitionError(f"single sign-on needs {missing} too, as RETOMA_OIDC_ISSUER is set")
    if settings.oidc_roles and settings.oidc_role_claim is None:
        raise DefinitionError("RETOMA_OIDC_ROLES is set, but not RETOMA_OIDC_ROLE_CLAIM: name the claim that has them")
    try:
        from retoma.server.oidc.provider import OidcProvider
    except ImportError as error:
        raise DefinitionError("single sign-on needs the extra `oidc`: pip install 'retoma[oidc]'") from error
    try:
        secret = settings.read_oidc_client_secret()
    except OSError as error:
        raise DefinitionError(f"RETOMA_OIDC_CLIENT_SECRET_FILE cannot be read: {error}") from error
    provider = OidcProvider(
        settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_scopes, guard=client.guard
    )
    return SingleSignOn(client, settings, provider)
