"""The pages of blogs: the list, a new one, and each with the form of its settings."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from retoma.errors import Conflict
from retoma.server import Page, PageContext
from retoma_apps.autowriter.models import BlogId
from retoma_apps.autowriter.operations import blogs
from retoma_apps.autowriter.pages import forms
from retoma_apps.autowriter.pages.common import HOME, get_common_values
from retoma_apps.autowriter.pages.forms import BLOG_FIELDS
from retoma_apps.autowriter.pages.messages import FIELD_ERRORS
from retoma_apps.forms import Form, InvalidForm, parse_revision

ROUTE = f"{HOME}blogs"
NEW_BLOG = 0  # the revision of a profile that does not exist
_BLOG_ID: TypeAdapter[str] = TypeAdapter(BlogId)


async def show_blogs(context: PageContext, status: int = 200, form: Form | None = None) -> Response:
    found = await blogs.list_blogs(context.client)
    if form is None and ("new" in context.query or not found):
        form = forms.create_blog_form(None)
    return context.render(
        "autowriter_blogs.html",
        status,
        blogs=found,
        form=form,
        **await get_common_values(context),
    )


async def create_blog(context: PageContext) -> Response:
    given = forms.get_submitted_fields(context.fields, ("id", *BLOG_FIELDS))
    form = Form(given)
    try:
        blog_id = _parse_id(context, given["id"])
        await blogs.set_blog(context.client, blog_id, forms.parse_blog(given, context.translator), revision=NEW_BLOG)
    except InvalidForm as error:
        return await show_blogs(context, 422, replace(form, errors=error.errors))
    except Conflict:
        taken = {"id": context.gettext("There is already a blog with this id.")}
        return await show_blogs(context, 409, replace(form, errors=taken))
    return context.redirect(_build_url(blog_id), "saved")


async def show_blog(context: PageContext, status: int = 200, form: Form | None = None) -> Response:
    blog_id = context.request.path_params["blog"]
    blog, revision = await blogs.get_blog(context.client, blog_id)
    return context.render(
        "autowriter_blog.html",
        status,
        blog_id=blog_id,
        blog=blog,
        revision=revision,
        action=_build_url(blog_id),
        form=form or forms.create_blog_form(blog),
        **await get_common_values(context),
    )


async def change_blog(context: PageContext) -> Response:
    """Save the form. If someone else saved in the meantime, show it again and save nothing."""
    blog_id = context.request.path_params["blog"]
    await blogs.get_blog(context.client, blog_id)
    given = forms.get_submitted_fields(context.fields, BLOG_FIELDS)
    form, revision = Form(given), parse_revision(context.fields.get("revision", ""))
    try:
        await blogs.set_blog(context.client, blog_id, forms.parse_blog(given, context.translator), revision=revision)
    except InvalidForm as error:
        return await show_blog(context, 422, replace(form, errors=error.errors))
    except Conflict:
        return await show_blog(context, 409, replace(form, has_conflict=True))
    return context.redirect(_build_url(blog_id), "saved")


def _parse_id(context: PageContext, text: str) -> str:
    try:
        return _BLOG_ID.validate_python(text)
    except ValidationError:
        raise InvalidForm({"id": context.translate(FIELD_ERRORS["id"])}) from None


def _build_url(blog_id: str) -> str:
    return f"{ROUTE}/{quote(blog_id, safe='')}"


PAGES = (
    Page(ROUTE, show_blogs, create_blog, submit_scope="runs:write"),
    Page(f"{ROUTE}/{{blog}}", show_blog, change_blog, submit_scope="runs:write"),
)
