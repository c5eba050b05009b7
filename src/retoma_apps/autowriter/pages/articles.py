"""The list of articles with its metrics, and the form to request one."""

from __future__ import annotations

import math
from time import monotonic

from starlette.responses import Response

from retoma import Client
from retoma.errors import KeyReused
from retoma.server import Page, PageContext
from retoma.translations import N_
from retoma_apps.autowriter.metrics import PERIODS, ArticleMetrics, measure_articles
from retoma_apps.autowriter.operations.articles import request_article
from retoma_apps.autowriter.operations.blogs import list_blogs
from retoma_apps.autowriter.operations.overview import list_article_page
from retoma_apps.autowriter.pages import forms, messages
from retoma_apps.autowriter.pages.common import (
    HOME,
    build_article_url,
    get_common_values,
    get_model,
    list_writable_themes,
)
from retoma_apps.autowriter.pages.forms import ARTICLE_FIELDS
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.writing.offline import NeedsLanguageModel
from retoma_apps.forms import Form, InvalidForm

NEW = f"{HOME}new"
METRICS_TTL_SECONDS = 10.0


class ArticleListPage:
    """The list. It measures the metrics at most every few seconds: it is loaded again after each event."""

    def __init__(self) -> None:
        self._metrics: dict[str, ArticleMetrics] = {}
        self._measured_at = -math.inf

    @property
    def pages(self) -> tuple[Page, ...]:
        return (Page(HOME, self.show, nav=N_("AutoWriter")),)

    async def show(self, context: PageContext) -> Response:
        blog, state = context.query.get("blog") or None, context.get_query_choice("state", ArticleState)
        page = await list_article_page(context.client, blog_id=blog, state=state, before=context.get_query_id("before"))
        return context.render(
            "autowriter.html",
            blogs=await list_blogs(context.client),
            chosen_blog=blog,
            chosen_state=state,
            states=list(ArticleState),
            page=page,
            metrics=await self._get_metrics(context.client),
            metric_name=lambda name: context.translate(messages.METRIC_NAMES[name]),
            **await get_common_values(context),
        )

    async def _get_metrics(self, client: Client) -> dict[str, ArticleMetrics]:
        if monotonic() - self._measured_at >= METRICS_TTL_SECONDS:
            self._metrics = {period: await measure_articles(client, period) for period in PERIODS}
            self._measured_at = monotonic()
        return self._metrics


async def show_new_article(context: PageContext, status: int = 200, form: Form | None = None) -> Response:
    blogs = await list_blogs(context.client)
    return context.render(
        "autowriter_new.html",
        status,
        blogs=blogs,
        form_blogs=[(blog_id, blog.name) for blog_id, blog in blogs.items()],
        form=form or forms.create_article_form(blogs, context.query.get("blog")),
        themes=await list_writable_themes(context),
        **await get_common_values(context),
    )


async def request_new_article(context: PageContext) -> Response:
    """Request an article. One that exists is shown, and not written again."""
    given = forms.get_submitted_fields(context.fields, ARTICLE_FIELDS)
    try:
        request = forms.parse_article(given, await list_blogs(context.client), context.translator)
        model = await get_model(context, request.blog_id)
        requested = await request_article(context.client, model, request, by=context.by)
    except InvalidForm as error:
        return await show_new_article(context, 422, Form(given, error.errors))
    except NeedsLanguageModel as error:
        return await show_new_article(context, 422, Form(given, {"theme": context.translate_error(error)}))
    except KeyReused:
        return await show_new_article(context, 409, Form(given, has_conflict=True))
    return context.redirect(build_article_url(requested.run.id), "requested" if requested.is_new else "exists")


PAGES = (Page(NEW, show_new_article, request_new_article, submit_scope="runs:write"),)
