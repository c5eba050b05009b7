"""The WordPress sites of the blogs, the files of imports, and what the providers can do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from retoma import Context, File, GiveUp
from retoma.files import FileStore
from retoma_apps.autowriter.models import Blog, ImportedLine
from retoma_apps.autowriter.steps.csv_file import parse_csv
from retoma_apps.providers.wordpress import Blog as WordPressBlog
from retoma_apps.providers.wordpress import OpenBlog

_FILES_KEPT = 8


@dataclass(frozen=True)
class FollowsNotes:
    """Whether the providers of texts and of images follow the free-form notes of a reviewer."""

    text: bool
    images: bool


@dataclass(frozen=True)
class Site:
    """The WordPress of a blog, and the number of the blog within its network."""

    wordpress: WordPressBlog
    site_id: int | None


async def open_own_site(open_blog: OpenBlog, ctx: Context) -> Site:
    """Return the site of the run's blog. Raise GiveUp if the blog was deleted meanwhile."""
    profile = await ctx.profile()
    if profile is None:
        raise GiveUp(f"there is no blog {ctx.tenant!r}: create it, then resume", "BLOG_NOT_FOUND")
    blog = Blog.model_validate(profile)
    return Site(open_blog(blog.site), blog.site_id)


class ImportFiles:
    """The lines of CSV files. It keeps those used last: each of their lines is a job, and none should parse all.

    Several imports may run at once, as blogs take turns.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._parsing: dict[str, asyncio.Task[Mapping[int, ImportedLine]]] = {}

    async def get_lines(self, file: File) -> Mapping[int, ImportedLine]:
        """Return the valid lines of a file by their numbers."""
        task = self._parsing.pop(file.file, None)
        if task is None or (task.done() and task.exception() is not None):
            task = asyncio.create_task(self._parse(file))
        self._parsing[file.file] = task
        if len(self._parsing) > _FILES_KEPT:
            del self._parsing[next(iter(self._parsing))]
        return await asyncio.shield(task)

    async def _parse(self, file: File) -> Mapping[int, ImportedLine]:
        parsed = await asyncio.to_thread(parse_csv, await self._files.load(file))
        return {each.line: each for each in parsed.lines}
