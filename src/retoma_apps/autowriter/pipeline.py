"""The steps of an article, the import of a file of them, and the mark on the draft of a rejected one."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, TypedDict

from retoma import Context, File, GiveUp, Items, Pipeline, Pool, Retry, all_finished, exponential, hours, minutes
from retoma.errors import ChildRunFailed
from retoma.reviews import Rejection
from retoma_apps.autowriter.models import (
    ArticleRequest,
    Blog,
    Brief,
    BriefDraft,
    Content,
    Faq,
    Headings,
    Image,
    ImagePrompt,
    ImagePrompts,
    Import,
    Keywords,
    Language,
    Links,
    Meta,
    Outline,
    Payload,
    Published,
    QualityReport,
    Tags,
    TitleDraft,
    TitleSlug,
)
from retoma_apps.autowriter.services import ImportFiles, open_own_site
from retoma_apps.autowriter.settings import PIPELINE_VERSION
from retoma_apps.autowriter.steps.feedback_checks import (
    check_fixed_text_feedback,
    check_image_feedback,
    check_text_feedback,
)
from retoma_apps.autowriter.steps.images import generate_image
from retoma_apps.autowriter.steps.keywords import resolve_keywords
from retoma_apps.autowriter.steps.links import choose_links
from retoma_apps.autowriter.steps.payload import Parts, build_html
from retoma_apps.autowriter.steps.publishing import list_posts, mark_draft, publish_article
from retoma_apps.autowriter.steps.quality import Article, check_quality
from retoma_apps.autowriter.steps.texts import make_slug, truncate
from retoma_apps.autowriter.steps.writing.ask import write_part
from retoma_apps.autowriter.steps.writing.offline import list_bundled_facts
from retoma_apps.media.review_times import REVIEW_TIMES
from retoma_apps.providers import estimates
from retoma_apps.providers.images import Images
from retoma_apps.providers.keywords import KeywordProvider
from retoma_apps.providers.llm import LanguageModel
from retoma_apps.providers.wordpress import OpenBlog

RETRY = Retry(2, delays=[10, 30], jitter=0)
"""Two retries with each provider; then the next one of the chain is tried after its `switch_delay`."""
# Shared by all blogs. None may use all of it: one blog's backlog must not block the others.
LLM_POOL = Pool("autowriter-llm", capacity=16, per_tenant=8)
IMAGE_POOL = Pool("autowriter-images", capacity=8, per_tenant=4)
KEYWORDS_POOL = Pool("autowriter-keywords", capacity=4, per_tenant=2)
WORDPRESS_POOL = Pool("autowriter-wordpress", capacity=16, per_tenant=2)
FIRST_STEP = "brief_created"
_EXCERPT = 300
_LONGEST_NOTE = 1_000


class Limits(TypedDict):
    """The limits of a step that calls paid providers: of one attempt, and of all attempts with all providers together,
    in time and in US dollars. Budgets are checked with the estimated cost before each attempt."""

    pool: Pool
    timeout: timedelta
    total_timeout: timedelta
    cost_limit: float
    estimated_cost: Decimal


WRITING: Limits = {
    "pool": LLM_POOL,
    "timeout": minutes(5),
    "total_timeout": hours(2),
    "cost_limit": 2.0,
    "estimated_cost": estimates.ANSWER,
}
WRITING_LONG: Limits = {**WRITING, "timeout": minutes(10), "estimated_cost": 2 * estimates.ANSWER}
KEYWORDS: Limits = {
    "pool": KEYWORDS_POOL,
    "timeout": minutes(2),
    "total_timeout": hours(2),
    "cost_limit": 0.5,
    "estimated_cost": estimates.KEYWORDS,
}
DRAWING: Limits = {
    "pool": IMAGE_POOL,
    "timeout": minutes(5),
    "total_timeout": hours(2),
    "cost_limit": 1.0,
    "estimated_cost": estimates.IMAGE,
}

article_mark = Pipeline("article_mark", Rejection)
article = Pipeline(
    "article", ArticleRequest, title="{theme}", tenant_field="blog_id", retry=RETRY, on_rejected=article_mark
)
article_import = Pipeline("article_import", Import, title="{file.name}", retry=Retry(2))


@article.step(**WRITING, feedback=check_fixed_text_feedback)
async def brief_created(
    theme: str,
    objective: str,
    language: Language,
    word_count: int,
    audience: str,
    tone: str,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> Brief:
    """Return the angle of the article and the facts that it is based on."""
    task = (
        "Plan an article: its angle, its audience, and 8 to 30 facts that it can be based on. Each fact is one "
        "sentence that can be checked; name its source, with a url only if you know that it exists."
    )
    material = {
        "theme": theme,
        "objective": objective,
        "language": language,
        "word_count": word_count,
        "audience": audience,
        "tone": tone,
    }
    draft = await write_part(llm, task, material, BriefDraft, ctx)
    return Brief(**draft.model_dump(), pipeline_version=PIPELINE_VERSION)


@article.step(**WRITING, feedback=check_fixed_text_feedback)
async def outline_created(
    theme: str, language: Language, word_count: int, brief_created: Brief, *, llm: LanguageModel, ctx: Context
) -> Outline:
    task = (
        "Divide the article into 3 to 8 sections. `id` has lower-case letters, digits and hyphens; `facts` has the "
        "numbers of the facts for the section, counted from 1."
    )
    material = {"theme": theme, "language": language, "word_count": word_count, **_describe_brief(brief_created)}
    return await write_part(llm, task, material, Outline, ctx)


@article.step(**KEYWORDS, after=brief_created)
async def keywords_resolved(
    theme: str, keyword: str, language: Language, *, keywords: KeywordProvider, ctx: Context
) -> Keywords:
    return await resolve_keywords(theme, keyword, language, keywords, ctx)


@article.step(**WRITING, feedback=check_text_feedback)
async def title_slug_created(
    theme: str,
    language: Language,
    brief_created: Brief,
    outline_created: Outline,
    keywords_resolved: Keywords,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> TitleSlug:
    task = "Write the title of the article, at most 65 characters, with the `keyword` in it."
    material = {
        "theme": theme,
        "language": language,
        "angle": brief_created.angle,
        "keyword": keywords_resolved.focus,
        "sections": outline_created.model_dump()["sections"],
    }
    draft = await write_part(llm, task, material, TitleDraft, ctx)
    return TitleSlug(title=draft.title, slug=make_slug(draft.title) or make_slug(theme) or "article")


@article.step(**WRITING, feedback=check_fixed_text_feedback)
async def meta_created(
    theme: str,
    language: Language,
    brief_created: Brief,
    keywords_resolved: Keywords,
    title_slug_created: TitleSlug,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> Meta:
    task = (
        "Write the meta title (20 to 65 characters) and the meta description (70 to 160 characters) that search "
        "engines show, both with the `keyword`."
    )
    material = {
        "theme": theme,
        "language": language,
        "angle": brief_created.angle,
        "keyword": keywords_resolved.focus,
        "title": title_slug_created.title,
    }
    return await write_part(llm, task, material, Meta, ctx)


@article.step(**WRITING, feedback=check_fixed_text_feedback)
async def headings_created(
    theme: str,
    language: Language,
    outline_created: Outline,
    keywords_resolved: Keywords,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> Headings:
    task = (
        "Write the heading of each section, in order. `level` is 2, or 3 for a section that belongs to the one above."
    )
    material = {
        "theme": theme,
        "language": language,
        "sections": outline_created.model_dump()["sections"],
        "keyword": keywords_resolved.focus,
        "other_keywords": [each.text for each in keywords_resolved.others],
    }
    return await write_part(llm, task, material, Headings, ctx)


@article.step(**WRITING_LONG, feedback=check_text_feedback)
async def content_created(
    theme: str,
    language: Language,
    word_count: int,
    tone: str,
    brief_created: Brief,
    outline_created: Outline,
    keywords_resolved: Keywords,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> Content:
    """Return the body. It does not depend on the headings, so new headings keep it."""
    task = (
        "Write the article in about `word_count` words: an introduction whose first paragraph has the `keyword`, the "
        "text of every section, and a conclusion. Do not write headings. `facts` of a section has the numbers of the "
        "facts that it uses."
    )
    material = {
        "theme": theme,
        "language": language,
        "word_count": word_count,
        "tone": tone,
        "keyword": keywords_resolved.focus,
        "sections": outline_created.model_dump()["sections"],
        **_describe_brief(brief_created),
    }
    return await write_part(llm, task, material, Content, ctx, words=word_count)


@article.step(**WRITING)
async def tags_created(
    theme: str, language: Language, content_created: Content, *, llm: LanguageModel, ctx: Context
) -> Tags:
    task = "Choose 3 to 8 tags for the article: short noun phrases."
    material = {"theme": theme, "language": language, "text": content_created.paragraphs}
    return await write_part(llm, task, material, Tags, ctx)


@article.step(**WRITING, feedback=check_fixed_text_feedback)
async def faq_created(
    theme: str,
    language: Language,
    brief_created: Brief,
    content_created: Content,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> Faq:
    task = "Write 3 to 5 questions that readers of the article may still have, each with a short answer."
    material = {
        "theme": theme,
        "language": language,
        "text": content_created.paragraphs,
        **_describe_brief(brief_created),
    }
    return await write_part(llm, task, material, Faq, ctx)


@article.step(pool=WORDPRESS_POOL, timeout=minutes(2))
async def internal_links_created(
    title_slug_created: TitleSlug, content_created: Content, *, open_blog: OpenBlog, ctx: Context
) -> Links:
    posts = await list_posts(await open_own_site(open_blog, ctx))
    return choose_links(content_created, title_slug_created, posts)


@article.step(**WRITING)
async def image_prompts_created(
    theme: str,
    language: Language,
    brief_created: Brief,
    outline_created: Outline,
    *,
    llm: LanguageModel,
    ctx: Context,
) -> list[ImagePrompt]:
    task = (
        "Describe one `featured` image and up to 3 images of sections for an image model; the `type` of the latter is "
        "`inline-` and the section's id. No text in images. `alt` describes the image to people who cannot see it."
    )
    material = {
        "theme": theme,
        "language": language,
        "angle": brief_created.angle,
        "sections": outline_created.model_dump()["sections"],
    }
    prompts = (await write_part(llm, task, material, ImagePrompts, ctx)).images
    return list({each.type: each for each in prompts}.values())


@article.each(image_prompts_created, key="type", on_failure="continue", feedback=check_image_feedback, **DRAWING)
async def images_resolved(image_prompt: ImagePrompt, *, images: Images, ctx: Context) -> Image:
    return await generate_image(image_prompt, images, ctx)


@article.step(pool=WORDPRESS_POOL, timeout=minutes(2))
async def quality_checked(
    language: Language,
    word_count: int,
    brief_created: Brief,
    outline_created: Outline,
    keywords_resolved: Keywords,
    title_slug_created: TitleSlug,
    meta_created: Meta,
    headings_created: Headings,
    content_created: Content,
    faq_created: Faq,
    internal_links_created: Links,
    *,
    open_blog: OpenBlog,
    ctx: Context,
) -> QualityReport:
    """Return the findings that a person must decide. Fail on those that nobody may accept."""
    linked = bool(internal_links_created.links)
    posts = await list_posts(await open_own_site(open_blog, ctx)) if linked else []
    report = check_quality(
        Article(
            language=language,
            word_count=word_count,
            brief=brief_created,
            outline=outline_created,
            keywords=keywords_resolved,
            title_slug=title_slug_created,
            meta=meta_created,
            headings=headings_created,
            content=content_created,
            faq=faq_created,
            links=internal_links_created,
            bundled=list_bundled_facts(language),
            posts={post.url for post in posts},
        )
    )
    if report.blocks:
        raise GiveUp("; ".join(finding.message for finding in report.blocks), "QUALITY_GATE_FAIL")
    return report


def has_warnings(quality_checked: QualityReport) -> bool:
    return quality_checked.has_warnings


# A review, so it succeeds only without warnings or once a person has accepted them.
article.review(
    "quality_gate_passed",
    of=quality_checked,
    when=has_warnings,
    send_back_to=[
        content_created,
        faq_created,
        title_slug_created,
        meta_created,
        headings_created,
        outline_created,
        brief_created,
    ],
    **REVIEW_TIMES,
)


@article.step(proceed_when=all_finished(1.0), after="quality_gate_passed")
async def payload_ready(
    language: Language,
    category: str,
    brief_created: Brief,
    outline_created: Outline,
    keywords_resolved: Keywords,
    title_slug_created: TitleSlug,
    meta_created: Meta,
    headings_created: Headings,
    content_created: Content,
    tags_created: Tags,
    faq_created: Faq,
    internal_links_created: Links,
    images_resolved: Items[Image],
    *,
    ctx: Context,
) -> Payload:
    blog = Blog.model_validate(await ctx.profile() or {"name": ctx.tenant})
    parts = Parts(
        language=language,
        brief=brief_created,
        outline=outline_created,
        headings=headings_created,
        content=content_created,
        faq=faq_created,
        links=internal_links_created,
        images=tuple(images_resolved),
    )
    return Payload(
        title=title_slug_created.title,
        slug=title_slug_created.slug,
        content=build_html(parts),
        excerpt=truncate(content_created.paragraphs[0], _EXCERPT),
        language=language,
        categories=[category] if category else blog.categories,
        tags=tags_created.tags,
        meta=meta_created,
        focus_keyword=keywords_resolved.focus,
        images=list(images_resolved),
        missing_images=[failure.key for failure in images_resolved.failures],
    )


@article.step(pool=WORDPRESS_POOL, timeout=minutes(5), total_timeout=hours(2), publishes=True)
async def published_wp(
    blog_id: str,
    theme: str,
    objective: str,
    language: Language,
    word_count: int,
    payload_ready: Payload,
    *,
    open_blog: OpenBlog,
    ctx: Context,
) -> Published:
    request = ArticleRequest(
        blog_id=blog_id, theme=theme, objective=objective, language=language, word_count=word_count
    )
    return await publish_article(payload_ready, request.identity, await open_own_site(open_blog, ctx), ctx)


def lacks_image(published_wp: Published) -> bool:
    return bool(published_wp.missing_images or published_wp.warnings)


article.review("image_review", of=published_wp, when=lacks_image, send_back_to=[images_resolved], **REVIEW_TIMES)

article.group("images", [images_resolved])
article.group("seo", [title_slug_created, meta_created, headings_created])
article.group("body", [content_created])


@article_import.step(timeout=minutes(2))
async def lines_found(file: File, skipped_lines: list[int], *, import_files: ImportFiles) -> list[int]:
    """Return the numbers of the lines that were not refused: the lines themselves may be too large for one result."""
    refused = set(skipped_lines)
    return [line for line in await import_files.get_lines(file) if line not in refused]


@article_import.each(lines_found, timeout=minutes(2), on_failure="continue")
async def csv_parsed(line: int, file: File, *, import_files: ImportFiles) -> ArticleRequest:
    """Return the request of a line."""
    return (await import_files.get_lines(file))[line].article


@article_import.each(lines_found, on_failure="continue")
async def article_requested(
    line: int, csv_parsed: ArticleRequest, file: File, *, import_files: ImportFiles, ctx: Context
) -> str:
    """Wait for the article of a line. The same article, requested before or by another line, is not written again,
    unless the line asks to regenerate it: then once per import."""
    request = csv_parsed
    regenerate = (await import_files.get_lines(file))[line].regenerate
    try:
        await ctx.run_child(
            article,
            request,
            tenant=request.blog_id,
            key=request.identity,
            rerun_from=FIRST_STEP if regenerate else None,
            rerun_key=f"regenerate {ctx.run}" if regenerate else None,
        )
    except ChildRunFailed as error:
        if error.code != "CHILD_COMPLETED_WITH_ERRORS":  # published, and a person accepted that an image is missing
            raise
    return request.identity


@article_mark.step(retry=Retry(10, backoff=exponential(30)), pool=WORDPRESS_POOL)
async def draft_marked(
    run_input: dict[str, Any], by: str | None, notes: str, *, open_blog: OpenBlog, ctx: Context
) -> bool:
    """Mark the draft of a rejected article, if there is one. It stays a draft."""
    identity = ArticleRequest.model_validate(run_input).identity
    note = ": ".join(filter(None, [by or "expired", notes]))
    return await mark_draft(identity, note[:_LONGEST_NOTE], await open_own_site(open_blog, ctx))


def _describe_brief(brief: Brief) -> dict[str, Any]:
    return {"angle": brief.angle, "audience": brief.audience, "facts": brief.model_dump()["facts"]}
