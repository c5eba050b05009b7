"""Log in at the identity provider: leave for it, and come back."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from retoma.errors import NotFound
from retoma.logs import get_logger
from retoma.server.auth import get_client_address
from retoma.server.oidc import SignOnFailed, SignOnFailure
from retoma.server.pages import login
from retoma.server.pages.login_session import open_session, safe_redirect_path
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import HEADERS, PageContext
from retoma.server.single_sign_on import CALLBACK_PATH, TIME_TO_LOG_IN, SingleSignOn
from retoma.store import people

log = get_logger(__name__)
LOGIN_PATH = "/login/oidc"
_COOKIE = "retoma-login"
# Anybody can cause these, without any account.
_ANONYMOUS = (SignOnFailure.NOT_STARTED_HERE, SignOnFailure.PROVIDER_UNREACHABLE)


async def leave_for_provider(context: PageContext) -> Response:
    sign_on, sessions = _require_sign_on(context), context.services.sessions
    sessions.check_login_rate(context.request)
    try:
        url, kept = await sign_on.begin(safe_redirect_path(context.query.get("to", "")))
    except SignOnFailed as error:
        return await _explain(context, error)
    response = RedirectResponse(url, 303, HEADERS)
    sessions.set_short_cookie(context.request, response, _COOKIE, kept, TIME_TO_LOG_IN)
    return response


async def come_back(context: PageContext) -> Response:
    sign_on, sessions = _require_sign_on(context), context.services.sessions
    sessions.check_login_rate(context.request)
    try:
        kept, address = sessions.read_short_cookie(context.request, _COOKIE), get_client_address(context.request)
        person, to = await sign_on.finish(kept, context.query, address or None)
        response = await open_session(context, person, to, "single sign-on")
    except SignOnFailed as error:
        response = await _explain(context, error)
    sessions.delete_short_cookie(context.request, response, _COOKIE)
    return response


async def _explain(context: PageContext, error: SignOnFailed) -> Response:
    log.warning("sign_on_failed", message="nobody was logged in", failure=error.failure, detail=error.detail)
    if error.failure not in _ANONYMOUS:
        person = (
            None if error.person is None else await people.find_person(context.services.client.database, error.person)
        )
        after = {"method": "single sign-on", "failure": error.failure}
        await context.services.sessions.record_failed_login(context.request, person, after)
    status = 503 if error.failure is SignOnFailure.PROVIDER_UNREACHABLE else 401
    return await login.render_form(context, "/", status=status, failure=error.failure)


def _require_sign_on(context: PageContext) -> SingleSignOn:
    if context.services.single_sign_on is None:
        raise NotFound(context.gettext("There is no page at this address."))
    return context.services.single_sign_on


PAGES = (Page(LOGIN_PATH, leave_for_provider, is_public=True), Page(CALLBACK_PATH, come_back, is_public=True))
