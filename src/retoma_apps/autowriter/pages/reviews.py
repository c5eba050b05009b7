"""What reviewers of an article see: the article as it is now, and what changed since they saw it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from retoma.records import Review
from retoma.server import PageContext, build_file_url
from retoma_apps.autowriter.models import ArticleRequest, Finding
from retoma_apps.autowriter.operations.preview import build_preview
from retoma_apps.autowriter.pages import messages
from retoma_apps.autowriter.pages.article_changes import find_changes
from retoma_apps.autowriter.pages.article_html import render_article
from retoma_apps.autowriter.pages.common import get_common_values, get_safe_link

REVIEW_TEMPLATES = {
    "quality_gate_passed": "autowriter_quality_review.html",
    "image_review": "autowriter_image_review.html",
    "published_wp": "autowriter_post_review.html",
}
_REVIEWED_STEPS = {"quality_gate_passed": "quality_checked", "image_review": "published_wp"}
"""The step under review. A step that asks for help is compared with its own last success."""


async def get_review_values(context: PageContext, review: Review) -> Mapping[str, Any]:
    run = await context.client.runs.get(review.run)
    request = ArticleRequest.model_validate(run.input)
    results = await context.client.runs.get_results(run.id, revision=review.revision)
    preview = build_preview(results, request.language)
    common = await get_common_values(context)
    return {name: value for name, value in common.items() if name != "now"} | {
        "request": request,
        "preview": preview,
        "changes": await find_changes(
            context.client, run, _REVIEWED_STEPS.get(review.step, review.step), review.revision
        ),
        "part_name": lambda part: context.translate(messages.PART_NAMES[part]),
        "body": await asyncio.to_thread(render_article, preview.html, preview.images, partial(build_file_url, run)),
        "safe_link": get_safe_link,
        "check_name": lambda check: context.translate(messages.CHECK_NAMES[check]),
        "describe_finding": lambda finding: messages.describe_finding(
            context.translator, Finding.model_validate(finding)
        ),
        "level_name": lambda level: context.translate(messages.LEVEL_NAMES[level]),
    }
