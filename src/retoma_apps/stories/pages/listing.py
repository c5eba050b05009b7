"""The list of stories, newest first, and the form to order one."""

from __future__ import annotations

from uuid import uuid4

from starlette.responses import Response

from retoma.server import Page, PageContext
from retoma.translations import N_
from retoma_apps.forms import Form, InvalidForm, validate_form
from retoma_apps.stories.models import DEFAULT_SCENES, Order
from retoma_apps.stories.operations.overview import get_overview
from retoma_apps.stories.operations.stories import order_story
from retoma_apps.stories.pages import messages
from retoma_apps.stories.pages.common import HOME, StoryPages
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.steps.writing.bundled import NeedsLanguageModel

PAGE_SIZE = 20
FIELDS = ("topic", "scenes", "languages", "channel")


class StoryListPages(StoryPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(HOME, self.show, self.order, nav=N_("Stories"), submit_scope="runs:write"),)

    async def show(self, context: PageContext, status: int = 200, form: Form | None = None) -> Response:
        found = await context.client.runs.list(
            pipeline=story.name, before=context.get_query_id("before"), limit=PAGE_SIZE
        )
        if form is None and ("new" in context.query or not found):
            topic = context.query.get("topic", "")[:300]
            channel = found[0].tenant if found else "principal"
            form = Form({"topic": topic, "scenes": str(DEFAULT_SCENES), "languages": "", "channel": channel})
        return context.render(
            "stories.html",
            status,
            rows=[await get_overview(context.client, run) for run in found],
            next=found[-1].id if len(found) == PAGE_SIZE else None,
            form=form,
            key=str(uuid4()),
            topics=(await self.get_services(context)).writer.topics or [],
            **await self.get_values(context),
        )

    async def order(self, context: PageContext) -> Response:
        """Order a story. A form that is sent twice orders one."""
        given = {name: context.fields.get(name, "").replace("\0", "").strip() for name in FIELDS}
        languages = [each.strip() for each in given["languages"].split(",") if each.strip()]
        key = context.fields.get("key", "")[:100] or None
        try:
            order = validate_form(
                Order, {**given, "languages": languages}, {}, messages.FIELD_ERRORS, context.translator
            )
            services = await self.get_services(context, order.channel)
            run = await order_story(context.client, order, services.writer, key=key and f"page {key}")
        except InvalidForm as error:
            return await self.show(context, 422, Form(given, error.errors))
        except NeedsLanguageModel as error:
            return await self.show(context, 422, Form(given, {"topic": context.translate_error(error)}))
        return context.redirect(f"{HOME}{run}", "ordered")
