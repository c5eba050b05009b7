"""Every element once, to check changes to the stylesheet."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.pages.differences import diff_results
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import DeliveryState, JobState, ReviewState, RunState

EXAMPLE = ({"title": "Tea", "minutes": 3}, {"title": "Green tea", "minutes": 3})


async def show_style_guide(context: PageContext) -> Response:
    states = {
        context.gettext("runs"): list(RunState),
        context.gettext("jobs"): list(JobState),
        context.gettext("reviews"): list(ReviewState),
        context.gettext("deliveries"): list(DeliveryState),
    }
    await context.load_keys()
    return context.render("style_guide.html", states=states, difference=diff_results(*EXAMPLE))


PAGES = (Page("/style-guide", show_style_guide, scope=None),)
