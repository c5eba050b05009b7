"""The forms of one article and of a blog."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from retoma.translations import Translator
from retoma_apps.autowriter.models import ArticleRequest, Blog
from retoma_apps.autowriter.pages.messages import FIELD_ERRORS
from retoma_apps.forms import Form, validate_form

ARTICLE_FIELDS = tuple(ArticleRequest.model_fields)
BLOG_FIELDS = tuple(Blog.model_fields)
DEFAULT_WORDS = "800"


def create_article_form(blogs: Mapping[str, Blog], blog_id: str | None) -> Form:
    chosen = blog_id if blog_id is not None and blog_id in blogs else next(iter(blogs), "")
    language = blogs[chosen].language if chosen else ""
    return Form(
        dict.fromkeys(ARTICLE_FIELDS, "") | {"blog_id": chosen, "language": language, "word_count": DEFAULT_WORDS}
    )


def create_blog_form(blog: Blog | None) -> Form:
    if blog is None:
        return Form(dict.fromkeys(("id", *BLOG_FIELDS), "") | {"language": "pt-BR"})
    shown = {name: "" if value is None else str(value) for name, value in blog}
    return Form(shown | {"categories": "\n".join(blog.categories)})


def get_submitted_fields(fields: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: fields.get(name, "").replace("\0", "").replace("\r\n", "\n").strip() for name in names}


def parse_article(fields: Mapping[str, str], blogs: Collection[str], translator: Translator) -> ArticleRequest:
    """Raise `InvalidForm` if a field is wrong."""
    errors = {} if fields["blog_id"] in blogs else {"blog_id": translator.translate(FIELD_ERRORS["blog_id"])}
    return validate_form(ArticleRequest, fields, errors, FIELD_ERRORS, translator)


def parse_blog(fields: Mapping[str, str], translator: Translator) -> Blog:
    """Raise `InvalidForm` if a field is wrong."""
    values = {name: fields[name] for name in BLOG_FIELDS} | {
        "site_id": fields["site_id"] or None,
        "categories": [line for line in fields["categories"].split("\n") if line.strip()],
    }
    return validate_form(Blog, values, {}, FIELD_ERRORS, translator)
