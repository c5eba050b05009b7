"""What stories cost: recorded charges by day, story and job type, and an estimate for a number of stories a day."""

from __future__ import annotations

from starlette.responses import Response

from retoma.server import Page, PageContext
from retoma_apps.stories.operations.costs import DAYS, STORIES_A_DAY, estimate_day, get_costs
from retoma_apps.stories.pages.common import HOME, StoryPages
from retoma_apps.stories.steps.prices import PRICES

ROUTE = f"{HOME}costs"
MOST_STORIES = 20


class CostPages(StoryPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show),)

    async def show(self, context: PageContext) -> Response:
        costs = await get_costs(context.client)
        dearest = sorted(costs.by_story.items(), key=lambda each: -each[1])[:MOST_STORIES]
        return context.render(
            "stories_costs.html",
            costs=costs,
            days=DAYS,
            stories=[(await context.client.runs.get(run), micros) for run, micros in dearest],
            prices=PRICES,
            estimates=[estimate_day(stories) for stories in STORIES_A_DAY],
            **await self.get_values(context),
        )
