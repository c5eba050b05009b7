"""The page of one story, and the actions on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pydantic import ValidationError
from starlette.responses import Response

from retoma.errors import AlreadyDecided, InvalidInput, RevisionChanged, RunBusy
from retoma.records import Run
from retoma.server import Page, PageContext, build_file_url
from retoma_apps.stories.models import LONGEST_TITLE, Approval
from retoma_apps.stories.operations.costs import get_story_cost
from retoma_apps.stories.operations.overview import get_details
from retoma_apps.stories.operations.publishing import NotReady, publish_story
from retoma_apps.stories.operations.stories import PARTS, get_story_run, rerun_scene
from retoma_apps.stories.pages.common import HOME, StoryPages, find_safe_url

ROUTE = f"{HOME}{{story}}"


class StoryDetailPages(StoryPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show),
            Page(f"{ROUTE}/publish", submit=self.publish, submit_scope="reviews:write"),
            Page(f"{ROUTE}/rerun", submit=self.rerun, submit_scope="runs:write"),
        )

    async def show(self, context: PageContext) -> Response:
        run = await _get_run(context)
        last_event = await context.client.runs.get_last_event_id(run.id)  # read first, so no later event is missed
        details = await get_details(context.client, run)
        return context.render(
            "story.html",
            run=run,
            details=details,
            earlier=[
                url for each in (details.upload.earlier if details.upload else []) if (url := find_safe_url(each))
            ],
            cost=await get_story_cost(context.client, run.id),
            file_url=partial(build_file_url, run),
            last_event=last_event,
            may_rerun=run.state.can_run,
            **await self.get_values(context),
        )

    async def publish(self, context: PageContext) -> Response:
        """Publish what the person saw. A form that is sent twice publishes once."""
        run = await _get_run(context)
        url, seen = f"{HOME}{run.id}", _parse_number(context.fields.get("seen", ""))
        try:
            await publish_story(
                context.client,
                run,
                _read_approval(context.fields),
                by=context.by,
                via="page",
                seen=seen,
                key=context.idempotency_key,
            )
        except AlreadyDecided:
            return context.redirect(url, "already")
        except NotReady:
            return context.redirect(url, "not_ready")
        except RevisionChanged:
            return context.redirect(url, "changed")
        return context.redirect(url, "published")

    async def rerun(self, context: PageContext) -> Response:
        run = await _get_run(context)
        parts = [part for part in PARTS if part in context.get_field_values("part")]
        scene = context.fields.get("scene", "")[:10]
        try:
            await rerun_scene(context.client, run, scene, parts, by=context.by, key=context.idempotency_key)
        except RunBusy:
            return context.redirect(f"{HOME}{run.id}", "busy")
        return context.redirect(f"{HOME}{run.id}", "scene_rerun")


async def _get_run(context: PageContext) -> Run:
    return await get_story_run(context.client, context.get_path_id("story"))


def _read_approval(fields: Mapping[str, str]) -> Approval:
    given = {
        "thumbnail": _parse_number(fields.get("thumbnail", "1")),
        "title": fields.get("title", "").strip()[:LONGEST_TITLE] or None,
        "description": fields["description"].replace("\r\n", "\n").strip() if "description" in fields else None,
        "tags": [tag.strip() for tag in fields["tags"].splitlines() if tag.strip()] if "tags" in fields else None,
        "new_video": fields.get("new_video") == "1",
    }
    try:
        return Approval.model_validate(given)
    except ValidationError as error:
        raise InvalidInput(
            "the form names no thumbnail of the story, a title that is not one line, or texts that are too long"
        ) from error


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise InvalidInput("the form does not name what to publish")
    return int(text)
