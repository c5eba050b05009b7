"""The list of videos, newest first, and the form to order one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server import Page, PageContext
from retoma.translations import N_
from retoma_apps.forms import Form, InvalidForm
from retoma_apps.videos.operations.channels import TooLate, start_video
from retoma_apps.videos.operations.overview import get_overview
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.badges import STAGE_BADGES
from retoma_apps.videos.pages.common import VideoPages
from retoma_apps.videos.pages.forms import ORDER_FIELDS
from retoma_apps.videos.pages.messages import TIME_ERRORS
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.steps.writing.bundled import NeedsLanguageModel

ROUTE = "/videos/"
PAGE_SIZE = 20


class VideoListPages(VideoPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(ROUTE, self.show, self.order, nav=N_("Videos"), submit_scope="runs:write"),)

    async def show(self, context: PageContext, status: int = 200, form: Form | None = None) -> Response:
        found = await context.client.runs.list(pipeline=longform.name, before=_page_start(context), limit=PAGE_SIZE)
        rows = [await get_overview(context.client, run) for run in found]
        if form is None and ("new" in context.query or not rows):
            form = forms.empty_order_form(
                found[0].tenant if found else "principal", context.query.get("topic", "")[:300]
            )
        return context.render(
            "videos.html",
            status,
            rows=rows,
            next=found[-1].id if len(found) == PAGE_SIZE else None,
            form=form,
            key=str(uuid4()),
            badges=STAGE_BADGES,
            safe_link=safe_link,
            channels=await self.list_channels(context.client) if form else [],
            topics=(await self.get_services(context)).writer.topics or [],
            **await self.get_values(context),
        )

    async def order(self, context: PageContext) -> Response:
        """Order a video. A form that is sent twice orders one."""
        given = forms.submitted_fields(context.fields, ORDER_FIELDS)
        try:
            order = forms.parse_order(given, context.translator, context.time_zone)
            key = context.fields.get("key", "")[:100] or None
            services = await self.get_services(context, order.channel)
            await start_video(context.client, order, services.writer, key=key and f"page {key}")
        except InvalidForm as error:
            return await self.show(context, 422, Form(given, error.errors))
        except NeedsLanguageModel as error:
            message = context.translate_error(error)
            return await self.show(context, 422, Form(given, {"topic": message}))
        except TooLate as error:
            message = context.translate(TIME_ERRORS[error.message_key])
            return await self.show(context, 422, Form(given, {error.field: message}))
        except InvalidInput as error:
            return await self.show(context, 422, replace(Form(given), errors={"channel": str(error)}))
        return context.redirect(ROUTE, "ordered")


def safe_link(upload: Mapping[str, Any]) -> str | None:
    """Return the video's address if it is HTTPS or a local page: a provider's text is not trusted."""
    url = str(upload.get("url", ""))
    return url if url.startswith(("https://", f"{ROUTE}channel/")) else None


def _page_start(context: PageContext) -> UUID | None:
    try:
        return UUID(context.query.get("before", ""))
    except ValueError:
        return None
