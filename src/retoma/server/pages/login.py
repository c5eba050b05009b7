"""Log in with the administrator's password, and log out."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.auth import get_client_address
from retoma.server.dev_auth import DevRefusal
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
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


async def show_login(context: PageContext) -> Response:
    return context.redirect("/") if context.token is not None else _render_form(context, context.query.get("to", ""))


async def log_in(context: PageContext) -> Response:
    sessions = context.services.sessions
    to = context.fields.get("to", "")
    token = await sessions.log_in(context.fields.get("password", ""), get_client_address(context.request))
    if token is None:
        return _render_form(context, to, status=401, wrong_password=True)
    if context.token is not None:
        await sessions.log_out(context.token)
    answer = context.redirect(_safe_redirect_path(to))
    sessions.set_cookie(context.request, answer, token)
    return answer


async def log_out(context: PageContext) -> Response:
    if context.token is not None:
        await context.services.sessions.log_out(context.token)
    answer = context.redirect("/login", "logged_out")
    context.services.sessions.delete_cookie(context.request, answer)
    return answer


def _render_form(context: PageContext, to: str, status: int = 200, wrong_password: bool = False) -> Response:
    refusal = context.services.auth.explain_dev_refusal(context.request)
    possible = context.services.sessions.can_log_in
    if refusal is not None and not possible:
        status = 401
    return context.render(
        "login.html",
        status,
        to=_safe_redirect_path(to),
        wrong_password=wrong_password,
        possible=possible,
        refusal="" if refusal is None else context.translate(_DEV_REFUSALS[refusal]),
    )


def _safe_redirect_path(to: str) -> str:
    """Return the path if it is on this server: to a browser, `//elsewhere` and `/\\elsewhere` are other hosts."""
    plain = to.startswith("/") and to[1:2] not in ("/", "\\") and to.isprintable()
    return to if plain else "/"


PAGES = (Page("/login", show_login, log_in, is_public=True), Page("/logout", submit=log_out))
