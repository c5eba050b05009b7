"""Every element once: the page for checking a change of the stylesheet."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.states import DeliveryState, JobState, ReviewState, RunState


async def show_style_guide(context: PageContext) -> Response:
    states = {
        "run": list(RunState),
        "job": list(JobState),
        "review": list(ReviewState),
        "delivery": list(DeliveryState),
    }
    return context.render("style_guide.html", states=states)


PAGES = (Page("/style-guide", show_style_guide),)
