"""What reviewers of an article see: the article as it is now, and what changed since they saw it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from retoma.records import Review
from retoma.server import PageContext, build_file_url
from retoma_apps.autowriter.models import ArticleRequest, Brief, Content, Fact, Finding, Language, QualityReport
from retoma_apps.autowriter.operations.preview import build_preview
from retoma_apps.autowriter.pages import messages
from retoma_apps.autowriter.pages.article_changes import find_changes
from retoma_apps.autowriter.pages.article_html import render_article
from retoma_apps.autowriter.pages.common import get_common_values, get_safe_link
from retoma_apps.autowriter.steps.writing.offline import list_bundled_facts

REVIEW_TEMPLATES = {
    "quality_gate_passed": "autowriter_quality_review.html",
    "image_review": "autowriter_image_review.html",
    "published_wp": "autowriter_post_review.html",
}
REVIEW_ASIDES = dict.fromkeys(REVIEW_TEMPLATES, "autowriter_review_aside.html")
_REVIEWED_STEPS = {"quality_gate_passed": "quality_checked", "image_review": "published_wp"}
"""The step under review. A step that asks for help is compared with its own last success."""


@dataclass(frozen=True)
class UsedFact:
    """A fact that the text uses. One that is not bundled is a language model's own, and nobody has checked it."""

    fact: Fact
    is_bundled: bool


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
        "report": QualityReport.model_validate(report) if (report := results.get("quality_checked")) else None,
        "facts": list_used_facts(results, request.language),
        "spent": await context.client.costs.get_totals(by=(), run=run.id),
        "part_name": lambda part: context.translate(messages.PART_NAMES[part]),
        "body": await asyncio.to_thread(render_article, preview.html, preview.images, partial(build_file_url, run)),
        "safe_link": get_safe_link,
        "check_name": lambda check: context.translate(messages.CHECK_NAMES[check]),
        "describe_finding": lambda finding: messages.describe_finding(
            context.translator, Finding.model_validate(finding)
        ),
        "level_name": lambda level: context.translate(messages.LEVEL_NAMES[level]),
    }


def list_used_facts(results: Mapping[str, Any], language: Language) -> list[UsedFact]:
    """Return the facts of the brief that the text declares to use, each with where it is from."""
    brief, content = results.get("brief_created"), results.get("content_created")
    if brief is None or content is None:
        return []
    facts = Brief.model_validate(brief).facts
    used = sorted(Content.model_validate(content).used_facts)
    bundled = list_bundled_facts(language)
    return [UsedFact(facts[at - 1], facts[at - 1] in bundled) for at in used if 1 <= at <= len(facts)]
