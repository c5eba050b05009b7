"""The keys of the inbox as a person has set them."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server.pages import inbox
from retoma.server.pages.keys import KEY_ACTIONS, find_double, is_key, merge_keys, read_space
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext


async def save_keys(context: PageContext) -> Response:
    """Keep the viewer's keys. An empty field leaves an action without a key; all can be reset."""
    if context.fields.get("reset"):
        await context.own_client.reviews.set_keys({})
        return context.redirect("/reviews", "keys_saved", **inbox.read_filters(context))
    chosen = {each.name: read_space(context.fields.get(each.name, each.key)) for each in KEY_ACTIONS}
    wrong = next((key for key in chosen.values() if key and not is_key(key)), None)
    if wrong is not None:
        raise InvalidInput(
            context.gettext("A key must be a single character other than a digit, not %(key)s.", key=wrong[:20])
        )
    if (double := find_double(merge_keys(chosen))) is not None:
        raise InvalidInput(context.gettext("Two actions have the same key: %(key)s.", key=double))
    await context.own_client.reviews.set_keys(chosen)
    return context.redirect("/reviews", "keys_saved", **inbox.read_filters(context))


PAGES = (Page("/reviews/keys", submit=save_keys, submit_scope=None),)
