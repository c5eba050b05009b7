"""The pages of batches: the list with the form to order one, and each batch with its videos."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from retoma.errors import InvalidInput
from retoma.server import Page, PageContext
from retoma_apps.forms import Form, InvalidForm
from retoma_apps.videos.operations import batches
from retoma_apps.videos.operations.channels import TooLate
from retoma_apps.videos.operations.overview import get_overview
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.badges import STAGE_BADGES
from retoma_apps.videos.pages.common import VideoPages
from retoma_apps.videos.pages.listing import PAGE_SIZE, safe_link
from retoma_apps.videos.pages.messages import TIME_ERRORS
from retoma_apps.videos.pipeline import video_batch
from retoma_apps.videos.steps.writing.bundled import NeedsLanguageModel

ROUTE = "/videos/batches"


class BatchPages(VideoPages):
    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show_all, self.order, submit_scope="runs:write"),
            Page(f"{ROUTE}/{{batch}}", self.show),
            Page(f"{ROUTE}/{{batch}}/cancel", submit=self.cancel, submit_scope="runs:write"),
        )

    async def show_all(self, context: PageContext, status: int = 200, form: Form | None = None) -> Response:
        before = context.get_query_id("before")
        found = await context.client.runs.list(pipeline=video_batch.name, before=before, limit=PAGE_SIZE)
        if form is None and ("new" in context.query or not found):
            form = forms.empty_batch_form(await self.list_channels(context.client))
        return context.render(
            "videos_batches.html",
            status,
            rows=[await batches.get_batch_summary(context.client, run) for run in found],
            next=found[-1].id if len(found) == PAGE_SIZE else None,
            form=form,
            channels=forms.list_batch_rows(form.fields) if form else [],
            bundled=(await self.get_services(context)).writer.topics or [],
            **await self.get_values(context),
        )

    async def order(self, context: PageContext) -> Response:
        """Order a batch. A form that is sent twice orders one."""
        given = forms.submitted_batch_fields(context.fields)
        try:
            order = forms.parse_batch(given, context.translator, context.time_zone)
            key = f"page {context.idempotency_key[:100]}" if context.idempotency_key else None
            batch = await batches.start_batch(context.client, order, key=key)
        except InvalidForm as error:
            return await self.show_all(context, 422, Form(given, error.errors))
        except TooLate as error:
            message = context.translate(TIME_ERRORS[error.message_key])
            return await self.show_all(context, 422, Form(given, {error.field.rpartition(".")[2]: message}))
        except NeedsLanguageModel as error:
            return await self.show_all(context, 422, Form(given, {"videos": context.translate_error(error)}))
        except InvalidInput as error:
            return await self.show_all(context, 422, Form(given, {"videos": str(error)}))
        return context.redirect(f"{ROUTE}/{batch}", "batch_ordered")

    async def show(self, context: PageContext) -> Response:
        run = await batches.get_batch_run(context.client, context.get_path_id("batch"))
        videos = await batches.list_batch_videos(context.client, run)
        after = context.get_query_number("after", 0)
        shown = [video for video in videos if video.number > after][:PAGE_SIZE]
        return context.render(
            "videos_batch.html",
            run=run,
            counts=Counter(video.state for video in videos).most_common(),
            total=len(videos),
            summary=await batches.get_batch_summary(context.client, run),
            cost=await batches.get_cost(context.client, run),
            rows=[(video, await get_overview(context.client, video.run) if video.run else None) for video in shown],
            next=shown[-1].number if shown and shown[-1].number < len(videos) else None,
            badges=STAGE_BADGES,
            safe_link=safe_link,
            **await self.get_values(context),
        )

    async def cancel(self, context: PageContext) -> Response:
        run = await batches.get_batch_run(context.client, context.get_path_id("batch"))
        await context.client.runs.cancel(run.id, by=context.by, key=context.idempotency_key)
        return context.redirect(f"{ROUTE}/{run.id}", "batch_cancelled")
