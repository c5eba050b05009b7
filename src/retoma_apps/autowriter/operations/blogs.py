"""Blogs: tenants with a profile."""

from __future__ import annotations

from collections.abc import Collection

from retoma import Client
from retoma.errors import AccessDenied, NotFound
from retoma.translations import N_
from retoma_apps.autowriter.models import Blog


class BlogNotFound(NotFound):
    code = "BLOG_NOT_FOUND"

    def __init__(self, blog_id: str) -> None:
        super().__init__(N_("there is no blog %(blog)s"), blog=f"{blog_id!r:.120}")


async def get_blog(client: Client, blog_id: str) -> tuple[Blog, int]:
    """Return a blog and the revision of its profile. Raise BlogNotFound."""
    try:
        profile = await client.tenants.get_profile(blog_id)
    except NotFound:
        raise BlogNotFound(blog_id) from None
    return Blog.model_validate(profile.value), profile.revision


async def list_blogs(client: Client) -> dict[str, Blog]:
    """Return by id all blogs that the client may see."""
    return {each.tenant: Blog.model_validate(each.value) for each in await client.tenants.list_profiles()}


async def set_blog(client: Client, blog_id: str, blog: Blog, *, revision: int | None = None) -> Blog:
    """Create a blog or change it. With `revision`, raise Conflict if somebody else changed it meanwhile; 0 is new.

    Raise AccessDenied if the client is for some blogs only: its settings name the site and its credentials.
    """
    if client.allowed_tenants is not None:
        raise AccessDenied("the settings of blogs can only be changed with access to all tenants")
    await client.tenants.set_profile(blog_id, blog.model_dump(), revision=revision)
    return blog


async def list_known_ids(client: Client) -> Collection[str]:
    return (await list_blogs(client)).keys()
