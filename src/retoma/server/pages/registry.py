"""The list of all pages of Retoma. Each file of pages has its own `PAGES`."""

from __future__ import annotations

from retoma.server.pages import (
    bulk_actions,
    capacity,
    charts,
    deliveries,
    edit,
    login,
    overview,
    queues,
    rerun,
    retries,
    review,
    reviews,
    run,
    runs,
    static,
    style_guide,
)

PAGES = (
    *overview.PAGES,
    *runs.PAGES,
    *run.PAGES,
    *edit.PAGES,
    *rerun.PAGES,
    *reviews.PAGES,
    *review.PAGES,
    *queues.PAGES,
    *capacity.PAGES,
    *retries.PAGES,
    *bulk_actions.PAGES,
    *charts.PAGES,
    *deliveries.PAGES,
    *login.PAGES,
    *style_guide.PAGES,
    *static.PAGES,
)
