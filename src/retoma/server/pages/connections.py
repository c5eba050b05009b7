"""The pages of connections: credentials of outside services. Secrets can be entered, replaced and tried, not read."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.responses import RedirectResponse, Response

from retoma.define.connections import ConnectionType
from retoma.engine.settings_services import SETTINGS_SERVICES
from retoma.errors import AccessDenied, Conflict, ConnectionKeyMissing, GiveUp, InvalidInput, NotFound, RetryLater
from retoma.logs import get_logger
from retoma.masking import mask_secrets
from retoma.records import ALL_TENANTS, Connection, ConnectionTest
from retoma.server.file_response import get_public_url
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext
from retoma.server.signed_values import SignedValues
from retoma.translations import N_

log = get_logger(__name__)
SCOPE = "connections:write"
CALLBACK_PATH = "/connections/consent"
TIME_TO_CONSENT = timedelta(minutes=15)
_COOKIE = "retoma-consent"
_PURPOSE = "connection consent"
_NOT_STARTED = N_("This consent was not started in this session, or it took too long. Start again.")
_REFUSED = N_("The consent was refused. Nothing was changed.")


@dataclass(frozen=True)
class _Named:
    """The connection that a form or a link names."""

    service: str
    tenant: str
    account: str

    @classmethod
    def read(cls, values: dict[str, str]) -> _Named:
        tenant = values.get("tenant") or ALL_TENANTS
        return cls(values.get("service", ""), tenant, values.get("account", "").strip())

    @property
    def options(self) -> dict[str, Any]:
        return {"tenant": self.tenant, "account": self.account}


async def show_connections(
    context: PageContext,
    status: int = 200,
    error: str = "",
    tested: _Named | None = None,
    result: ConnectionTest | None = None,
) -> Response:
    client = context.client
    kinds, may_set_all = client.connections.types, client.allowed_tenants is None
    found = await client.connections.list()
    return context.render(
        "connections.html",
        status,
        connections=found,
        kinds=kinds,
        addable=[kind for kind in kinds.values() if kind.fields and (may_set_all or not kind.for_all_tenants)],
        missing=[kind for kind in kinds.values() if kind.fields and not _is_there(kind, found)],
        configured=[kind for kind in SETTINGS_SERVICES.values() if may_set_all and not _is_there(kind, found)],
        error=error,
        tested=tested,
        result=result,
        title_of=lambda name: _translate(context, kinds[name])(kinds[name].title) if name in kinds else name,
        all_tenants=ALL_TENANTS,
    )


async def edit_connection(context: PageContext, status: int = 200, error: str = "") -> Response:
    """Show the form of a connection. Its secrets stay empty, also after an error."""
    client, entered = context.client, context.fields if error else {**context.query, **context.request.path_params}
    named = _Named.read(entered)
    kind = client.connections.get_type(named.service)
    current = await _find(context, named)
    settings, may_set_all = dict(current.settings) if current else {}, client.allowed_tenants is None
    tenants = await client.tenants.list_names() if may_set_all else sorted(client.allowed_tenants or ())
    return context.render(
        "connection.html",
        status,
        kind=kind,
        translate=_translate(context, kind),
        named=named,
        current=current,
        values={name: entered.get(f"field.{name}", settings.get(name, "")) for name in _text_names(kind)},
        tenants=[] if kind.for_all_tenants else tenants,
        may_set_all=may_set_all,
        all_tenants=ALL_TENANTS,
        from_consent=kind.consent.fields if kind.consent else (),
        error=error,
    )


async def set_connection(context: PageContext) -> Response:
    named = _Named.read(context.fields)
    prefix = "field."
    given = {name.removeprefix(prefix): value for name, value in context.fields.items() if name.startswith(prefix)}
    try:
        kind = context.client.connections.get_type(named.service)
        values = {name: value for name, value in given.items() if value.strip() or name not in kind.secret_names}
        await context.client.connections.set(named.service, values, by=context.by, **named.options)
    except (Conflict, InvalidInput, ConnectionKeyMissing) as error:
        return await edit_connection(context, 422, context.translate_error(error))
    return context.redirect("/connections", "connection_set")


async def test_connection(context: PageContext) -> Response:
    named = _Named.read(context.fields)
    try:
        result = await context.client.connections.test(named.service, by=context.by, **named.options)
    except ConnectionKeyMissing as error:
        return await show_connections(context, 409, context.translate_error(error))
    return await show_connections(context, tested=named, result=result)


async def delete_connection(context: PageContext) -> Response:
    named = _Named.read(context.fields)
    await context.client.connections.delete(named.service, **named.options)
    return context.redirect("/connections", "connection_deleted")


async def begin_consent(context: PageContext) -> Response:
    """Send the browser to the service, where the owner of the account consents."""
    named = _Named.read(context.query)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    try:
        url = await context.client.connections.get_consent_url(
            named.service, state, challenge, _get_callback(context), **named.options
        )
    except (InvalidInput, NotFound, ConnectionKeyMissing, GiveUp) as error:
        return await show_connections(context, 422, _explain(context, error))
    kept = {**vars(named), "state": state, "verifier": verifier, "session": _hash_session(context)}
    signed = await SignedValues(context.services.client).sign(_PURPOSE, kept, TIME_TO_CONSENT)
    response = RedirectResponse(url, 303, HEADERS)
    context.services.sessions.set_short_cookie(context.request, response, _COOKIE, signed, TIME_TO_CONSENT)
    return response


async def finish_consent(context: PageContext) -> Response:
    """Exchange the code with which the browser comes back, once, in the session that has begun the consent."""
    sessions = context.services.sessions
    kept = await SignedValues(context.services.client).read(
        _PURPOSE, sessions.read_short_cookie(context.request, _COOKIE)
    )
    response = await _finish(context, kept)
    sessions.delete_short_cookie(context.request, response, _COOKIE)
    return response


async def _finish(context: PageContext, kept: dict[str, str] | None) -> Response:
    state = context.query.get("state", "")
    if (
        kept is None
        or not hmac.compare_digest(kept["session"], _hash_session(context))
        or not hmac.compare_digest(kept["state"].encode(), state.encode(errors="replace"))
    ):
        return await show_connections(context, 400, context.gettext(_NOT_STARTED))
    if not context.query.get("code"):
        return await show_connections(context, 400, context.gettext(_REFUSED))
    named = _Named.read(kept)
    try:
        await context.client.connections.finish_consent(
            named.service,
            context.query["code"],
            kept["verifier"],
            _get_callback(context),
            by=context.by,
            **named.options,
        )
    except (AccessDenied, Conflict, InvalidInput, NotFound, ConnectionKeyMissing, GiveUp, RetryLater) as error:
        log.warning("consent_failed", message="no connection was set", service=named.service, error=error)
        return await show_connections(context, 422, _explain(context, error))
    return context.redirect("/connections", "connection_set")


def _translate(context: PageContext, kind: ConnectionType) -> Callable[[str], str]:
    """Return a function that translates with the catalogue of the application that declares the service."""
    owner = next((each for each in context.services.applications if kind in each.connections), None)
    return context.services.get_translator(context.language, owner).gettext


def _explain(context: PageContext, error: Exception) -> str:
    return mask_secrets(context.gettext("It did not work: %(reason)s", reason=str(error)))


def _get_callback(context: PageContext) -> str:
    return f"{get_public_url(context.request)}{CALLBACK_PATH}"


def _hash_session(context: PageContext) -> str:
    """Return a digest of the session: what its cookie is bound to must not reveal it."""
    return hashlib.sha256((context.token or "").encode()).hexdigest()


def _is_there(kind: ConnectionType, found: Any) -> bool:
    return any(each.service == kind.service for each in found)


def _text_names(kind: ConnectionType) -> list[str]:
    return [each.name for each in kind.fields if each.kind != "secret"]


async def _find(context: PageContext, named: _Named) -> Connection | None:
    try:
        return await context.client.connections.get(named.service, **named.options)
    except (AccessDenied, NotFound):
        return None


PAGES = (
    Page("/connections", show_connections, set_connection, scope=SCOPE, submit_scope=SCOPE),
    Page("/connections/edit/{service}", edit_connection, scope=SCOPE),
    Page("/connections/test", show_connections, test_connection, scope=SCOPE, submit_scope=SCOPE),
    Page("/connections/delete", show_connections, delete_connection, scope=SCOPE, submit_scope=SCOPE),
    Page("/connections/consent/start", begin_consent, scope=SCOPE),
    Page(CALLBACK_PATH, finish_consent, scope=SCOPE),
)
