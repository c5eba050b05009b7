"""Every element once: the page for checking a change of the stylesheet."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.states import DeliveryState, JobState, ReviewState, RunState


async def show(visit: Visit) -> Response:
    states = {
        "run": list(RunState),
        "job": list(JobState),
        "review": list(ReviewState),
        "delivery": list(DeliveryState),
    }
    return visit.show("kit.html", states=states)


PAGES = (Page("/kit", show),)
