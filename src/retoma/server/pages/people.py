"""The pages of people, for administrators: invite, give roles, send links, disable."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import Conflict, InvalidInput
from retoma.records import ALL_TENANTS, NewAccountLink, Role
from retoma.server.file_response import get_public_url
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number

SCOPE = "people:write"


async def show_people(
    context: PageContext, status: int = 200, error: str = "", link: NewAccountLink | None = None
) -> Response:
    client = context.client
    allowed = client.allowed_tenants
    return context.render(
        "people.html",
        status,
        people=await client.people.list(include_disabled=True),
        roles=list(Role),
        tenants=await client.tenants.list_names(),
        may_grant_all=allowed is None,
        fields=context.fields if error else {},
        error=error,
        link=link,
        link_url="" if link is None else f"{get_public_url(context.request)}/set-password/{link.token}",
        is_own_account=lambda person: context.person is not None and person.id == context.person.id,
    )


async def invite_person(context: PageContext) -> Response:
    fields = context.fields
    try:
        link = await context.client.people.invite(
            fields.get("name", ""), fields.get("email", ""), role=fields.get("role", ""), tenant=_read_tenant(context)
        )
    except (Conflict, InvalidInput) as error:
        return await show_people(context, 422, context.translate_error(error))
    context.fields = {}
    return await show_people(context, link=link)


async def change_role(context: PageContext) -> Response:
    email, role = context.fields.get("email", ""), context.fields.get("role", "")
    try:
        if role:
            await context.client.people.set_role(email, role, tenant=_read_tenant(context))
        else:
            await context.client.people.remove_role(email, tenant=_read_tenant(context))
    except (Conflict, InvalidInput) as error:
        return await show_people(context, 409, context.translate_error(error))
    return context.redirect("/people", "role_changed", anchor=f"person-{parse_number(context.fields.get('id', ''), 0)}")


async def create_link(context: PageContext) -> Response:
    return await show_people(context, link=await context.client.people.create_link(context.fields.get("email", "")))


async def disable_person(context: PageContext) -> Response:
    try:
        await context.client.people.disable(context.fields.get("email", ""))
    except Conflict as error:
        return await show_people(context, 409, context.translate_error(error))
    return context.redirect("/people", "person_disabled")


async def enable_person(context: PageContext) -> Response:
    await context.client.people.enable(context.fields.get("email", ""))
    return context.redirect("/people", "person_enabled")


async def end_sessions(context: PageContext) -> Response:
    await context.client.people.end_sessions(context.fields.get("email", ""))
    return context.redirect("/people", "sessions_ended")


async def remove_second_factor(context: PageContext) -> Response:
    await context.client.people.remove_second_factor(context.fields.get("email", ""))
    return context.redirect("/people", "second_factor_removed")


async def unlink_person(context: PageContext) -> Response:
    await context.client.people.unlink(context.fields.get("email", ""))
    return context.redirect("/people", "person_unlinked")


def _read_tenant(context: PageContext) -> str | None:
    """Return the tenant that the form names; None for all tenants. Only an existing one: a typo would create one."""
    tenant = context.fields.get("tenant", "")
    return None if tenant == ALL_TENANTS else tenant


PAGES = (
    Page("/people", show_people, invite_person, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/role", show_people, change_role, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/link", show_people, create_link, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/disable", show_people, disable_person, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/enable", show_people, enable_person, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/second-factor", show_people, remove_second_factor, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/unlink", show_people, unlink_person, scope=SCOPE, submit_scope=SCOPE),
    Page("/people/end-sessions", show_people, end_sessions, scope=SCOPE, submit_scope=SCOPE),
)
