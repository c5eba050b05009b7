"""Two revisions of an article side by side."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from retoma.server import Page, PageContext, build_file_url, diff_results
from retoma_apps.autowriter.operations.articles import get_article_run
from retoma_apps.autowriter.operations.revisions import PARTS, get_revision
from retoma_apps.autowriter.pages.article import ROUTE
from retoma_apps.autowriter.pages.common import get_common_values
from retoma_apps.autowriter.pages.messages import PART_NAMES


async def compare_revisions(context: PageContext) -> Response:
    """Show two revisions that the query chooses; by default the last two."""
    run = await get_article_run(context.client, context.get_path_id("article"))
    last = min(max(context.get_query_number("to", run.revision), 1), run.revision)
    first = min(max(context.get_query_number("from", last - 1), 1), run.revision)
    old, new = [await get_revision(context.client, run, number) for number in (first, last)]
    return context.render(
        "autowriter_revisions.html",
        run=run,
        old=old,
        new=new,
        differences=await asyncio.to_thread(
            lambda: {part: diff_results(old.texts[part], new.texts[part]) for part in PARTS}
        ),
        image_types=sorted({*old.images, *new.images}),
        part_name=lambda part: context.translate(PART_NAMES[part]),
        file_url=partial(build_file_url, run),
        **await get_common_values(context),
    )


PAGES = (Page(f"{ROUTE}/revisions", compare_revisions),)
