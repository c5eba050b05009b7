"""Log in with e-mail address and password, log out, and set a password by an invitation or reset link."""

from __future__ import annotations

from starlette.responses import Response

from retoma.engine import accounts
from retoma.errors import Gone, InvalidInput
from retoma.records import Person
from retoma.server.auth import get_client_address
from retoma.server.dev_auth import DevRefusal
from retoma.server.oidc import SignOnFailure
from retoma.server.pages import second_factor
from retoma.server.pages.login_session import open_session, safe_redirect_path
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.store import people
from retoma.translations import N_

_DEV_REFUSALS = {
    DevRefusal.NO_TOKEN: N_(
        "This is `retoma dev`. Open the address that it printed in the terminal when it started: it carries a token "
        "that logs this browser in. Every start has a new token."
    ),
    DevRefusal.PROXIED: N_(
        "This request came through a proxy, and `retoma dev` serves only its own machine. To give others access, run "
        "`retoma serve` and `retoma worker`."
    ),
    DevRefusal.NOT_LOCAL: N_(
        "`retoma dev` serves only its own machine, under that machine's own name. To give others access, run `retoma "
        "serve` and `retoma worker`."
    ),
}


_SIGN_ON_FAILURES = {
    SignOnFailure.PROVIDER_UNREACHABLE: N_(
        "The login service cannot be reached or is not set up correctly. Try again later, or tell an administrator."
    ),
    SignOnFailure.PROVIDER_REFUSED: N_("The login service did not confirm who you are. Try again."),
    SignOnFailure.NOT_STARTED_HERE: N_(
        "This login took too long or was not started in this browser. Start it again from here."
    ),
    SignOnFailure.INVALID_TOKEN: N_(
        "The answer of the login service is not valid, so nobody was logged in. Tell an administrator if this repeats."
    ),
    SignOnFailure.EMAIL_NOT_VERIFIED: N_(
        "The login service has not verified your e-mail address. Verify it there, then log in again."
    ),
    SignOnFailure.EMAIL_OF_ANOTHER: N_(
        "Your e-mail address belongs to an account that another login uses. Ask an administrator to unlink it."
    ),
    SignOnFailure.UNKNOWN_PERSON: N_("You have no account here. Ask an administrator to invite you."),
    SignOnFailure.NO_ROLE: N_("You have no role here yet, so there is nothing to see. Ask an administrator for one."),
    SignOnFailure.DISABLED: N_("Your account is disabled. Ask an administrator."),
}


async def show_login(context: PageContext) -> Response:
    if context.token is not None:
        return context.redirect("/")
    return await render_form(context, context.query.get("to", ""))


async def log_in(context: PageContext) -> Response:
    to, email = context.fields.get("to", ""), context.fields.get("email", "")
    person = await context.services.sessions.check_password(
        email, context.fields.get("password", ""), get_client_address(context.request)
    )
    if person is None:
        sessions = context.services.sessions
        after = {"method": "password", "failure": "wrong_password"}
        await sessions.record_failed_login(context.request, await sessions.find_by_email(email), after)
        return await render_form(context, to, status=401, email=email, is_wrong=True)
    return await complete_login(context, person, to)


async def complete_login(context: PageContext, person: Person, to: str) -> Response:
    """Log in a person who has proved the password: ask for the second factor if there is one or must be one."""
    next_step = await second_factor.ask_for_code(context, person, to)
    return await open_session(context, person, to, "password") if next_step is None else next_step


async def log_out(context: PageContext) -> Response:
    if context.token is not None and context.person is not None:
        await context.services.sessions.log_out(context.request, context.person, context.token)
    answer = context.redirect("/login", "logged_out")
    context.services.sessions.delete_cookie(context.request, answer)
    return answer


async def show_link(context: PageContext, status: int = 200, error: str = "") -> Response:
    """Opening a link changes nothing: a mail scanner may open it too."""
    found = await accounts.find_link(context.services.client.database, context.request.path_params["token"])
    if found is None:
        raise Gone(context.gettext("This link was used before or has expired. Ask an administrator for another one."))
    person, purpose = found
    least = accounts.MIN_PASSWORD_LENGTH
    return context.render(
        "set_password.html", status, person=person, purpose=purpose, error=error, least=least, action=context.path
    )


async def use_link(context: PageContext) -> Response:
    password = context.fields.get("password", "")
    if password != context.fields.get("again", ""):
        return await show_link(context, 422, context.gettext("The two passwords differ."))
    try:
        person = await context.services.sessions.use_link(
            context.request, context.request.path_params["token"], password
        )
    except InvalidInput as error:
        return await show_link(context, 422, context.translate_error(error))
    return await show_link(context) if person is None else await complete_login(context, person, "/")


async def render_form(
    context: PageContext,
    to: str,
    status: int = 200,
    email: str = "",
    is_wrong: bool = False,
    failure: SignOnFailure | None = None,
) -> Response:
    refusal = context.services.auth.explain_dev_refusal(context.request)
    return context.render(
        "login.html",
        401 if refusal is not None else status,
        to=safe_redirect_path(to),
        email=email,
        is_wrong=is_wrong,
        sign_on=context.services.single_sign_on,
        failure="" if failure is None else context.translate(_SIGN_ON_FAILURES[failure]),
        has_administrator=await people.has_administrator(context.services.client.database),
        refusal="" if refusal is None else context.translate(_DEV_REFUSALS[refusal]),
    )


PAGES = (
    Page("/login", show_login, log_in, is_public=True),
    Page("/logout", submit=log_out, submit_scope=None),
    Page("/set-password/{token}", show_link, use_link, is_public=True),
)
