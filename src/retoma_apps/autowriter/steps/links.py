"""Choose other posts of the blog for an article to link to."""

from __future__ import annotations

from collections.abc import Sequence

from retoma_apps.autowriter.models import Content, InternalLink, Links, TitleSlug
from retoma_apps.autowriter.steps.texts import list_content_words
from retoma_apps.providers.wordpress import PostLink

MAX_LINKS = 3


def choose_links(content: Content, title_slug: TitleSlug, posts: Sequence[PostLink]) -> Links:
    """Return links to the posts whose titles share most words with a section, each at the end of that section.

    The article itself, known by its slug, is left out.
    """
    words = {each.section: set(list_content_words(" ".join(each.paragraphs))) for each in content.sections}
    found: list[tuple[int, InternalLink]] = []
    for post in posts:
        if post.url.rstrip("/").rpartition("/")[2] == title_slug.slug:
            continue
        wanted = set(list_content_words(post.title))
        shared, section = max(((len(wanted & known), name) for name, known in words.items()), default=(0, ""))
        if shared:
            found.append((shared, InternalLink(section=section, url=post.url, title=post.title)))
    found.sort(key=lambda each: (-each[0], each[1].url))
    return Links(links=[link for _, link in found[:MAX_LINKS]])
