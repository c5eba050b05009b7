"""The list of articles with its metrics, and the form to request one."""

from __future__ import annotations

from starlette.responses import Response

from retoma.errors import KeyReused
from retoma.server import Page, PageContext
from retoma.translations import N_
from retoma_apps.autowriter.metrics import PERIODS, measure_articles
from retoma_apps.autowriter.operations.articles import request_article
from retoma_apps.autowriter.operations.blogs import list_blogs
from retoma_apps.autowriter.operations.overview import list_article_page
from retoma_apps.autowriter.pages import forms, messages
from retoma_apps.autowriter.pages.common import HOME, build_article_url, get_common_values
from retoma_apps.autowriter.pages.forms import ARTICLE_FIELDS
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.forms import Form, InvalidForm

NEW = f"{HOME}new"


async def show_articles(context: PageContext) -> Response:
    blogs = await list_blogs(context.client)
    blog, state = context.query.get("blog") or None, context.get_query_choice("state", ArticleState)
    page = await list_article_page(context.client, blog_id=blog, state=state, before=context.get_query_id("before"))
    return context.render(
        "autowriter.html",
        blogs=blogs,
        chosen_blog=blog,
        chosen_state=state,
        states=list(ArticleState),
        page=page,
        metrics={period: await measure_articles(context.client, period) for period in PERIODS},
        metric_name=lambda name: context.translate(messages.METRIC_NAMES[name]),
        **await get_common_values(context),
    )


async def show_new_article(context: PageContext, status: int = 200, form: Form | None = None) -> Response:
    blogs = await list_blogs(context.client)
    return context.render(
        "autowriter_new.html",
        status,
        blogs=blogs,
        form_blogs=[(blog_id, blog.name) for blog_id, blog in blogs.items()],
        form=form or forms.create_article_form(blogs, context.query.get("blog")),
        **await get_common_values(context),
    )


async def request_new_article(context: PageContext) -> Response:
    """Request an article. One that exists is shown, and not written again."""
    given = forms.get_submitted_fields(context.fields, ARTICLE_FIELDS)
    try:
        request = forms.parse_article(given, await list_blogs(context.client), context.translator)
        requested = await request_article(context.client, request, by=context.by)
    except InvalidForm as error:
        return await show_new_article(context, 422, Form(given, error.errors))
    except KeyReused:
        return await show_new_article(context, 409, Form(given, has_conflict=True))
    return context.redirect(build_article_url(requested.run.id), "requested" if requested.is_new else "exists")


PAGES = (
    Page(HOME, show_articles, nav=N_("AutoWriter")),
    Page(NEW, show_new_article, request_new_article),
)
