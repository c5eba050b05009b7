"""The fifteen steps of a video, four of them reviews, and a final check that it is public; and batches of videos."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from retoma import Context, Pipeline, Pool, Retry, exponential, fixed_delay, hours, minutes
from retoma.records import Fact as Learnt
from retoma_apps.media.models import Language
from retoma_apps.media.review_times import REVIEW_TIMES
from retoma_apps.media.subtitles import srt, vtt
from retoma_apps.providers.images import Images
from retoma_apps.videos.models import (
    Analytics,
    Assembly,
    Batch,
    Brief,
    Broll,
    Fact,
    FinalChoice,
    FinalFeedback,
    FootageFeedback,
    KnownFacts,
    Narration,
    NarrationFeedback,
    PlannedVideo,
    Publication,
    Research,
    Script,
    Source,
    Subtitles,
    Thumbnails,
    Upload,
)
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps import estimates, feedback_checks, footage, narration, publishing, thumbnails
from retoma_apps.videos.steps.feedback_history import append_feedback, find_previous_result
from retoma_apps.videos.steps.writing.port import Writer, WritingRequest

MOST_FACTS = 30
# Shared by all channels. None may use all of it: one channel's backlog must not block the others.
WRITER = Pool("writer", capacity=8, per_tenant=4)
VOICES = Pool("voices", capacity=8, per_tenant=4)
FOOTAGE = Pool("footage", capacity=4, per_tenant=2)
IMAGES = Pool("images", capacity=4, per_tenant=2)
FILMS = Pool("films", capacity=2, per_tenant=1)

RETRY = Retry(3, backoff=exponential(5))  # of a call to a provider

longform = Pipeline("longform", Brief, title="{topic}", retry=Retry(2, backoff=fixed_delay(5)))
video_batch = Pipeline("video_batch", Batch, title=lambda batch: ", ".join(batch.channels))


@longform.step(retry=Retry(3, backoff=exponential(2)))
async def knowledge_query(topic: str, language: Language, *, ctx: Context) -> KnownFacts:
    learnt = await ctx.recall(topic, language=language, limit=MOST_FACTS)
    return KnownFacts(facts=[Fact(text=fact.text, source=_source_of_known_fact(fact)) for fact in learnt])


@longform.step(
    pool=WRITER,
    retry=RETRY,
    timeout=minutes(5),
    feedback=feedback_checks.check_research_feedback,
    estimated_cost=estimates.WRITING,
)
async def research(
    topic: str, language: Language, style: str, knowledge_query: KnownFacts, *, writer: Writer, ctx: Context
) -> Research:
    brief, known = Brief(topic=topic, language=language, style=style), knowledge_query.facts
    previous = find_previous_result(Research, topic, language, ctx)
    feedback = append_feedback(previous.feedback_history if previous else [], ctx)

    async def find_facts() -> list[dict[str, Any]]:
        request = WritingRequest(brief, known, feedback)
        found = await writer.research(request, on_usage=lambda usage: usage.charge(ctx, writer.provider, writer.name))
        return [fact.model_dump() for fact in found]

    facts = [*known, *map(Fact.model_validate, await ctx.once("research", find_facts))]
    return Research(topic=topic, language=language, feedback_history=feedback, facts=facts, reused=len(known))


@longform.step(
    pool=WRITER,
    retry=Retry(2, backoff=fixed_delay(10)),
    timeout=minutes(5),
    feedback=feedback_checks.check_script_feedback,
    estimated_cost=estimates.WRITING,
)
async def script_generation(
    topic: str, language: Language, style: str, seconds: int, research: Research, *, writer: Writer, ctx: Context
) -> Script:
    brief = Brief(topic=topic, language=language, style=style, seconds=seconds)
    previous = find_previous_result(Script, topic, language, ctx)
    followed = previous.feedback_history if previous else []
    feedback = append_feedback([*followed, *(note for note in research.feedback_history if note not in followed)], ctx)

    async def write() -> dict[str, Any]:
        request = WritingRequest(brief, research.facts, feedback, previous if feedback != followed else None)
        written = await writer.script(request, on_usage=lambda usage: usage.charge(ctx, writer.provider, writer.name))
        return written.model_dump()

    script = Script.model_validate(await ctx.once("script", write))
    return script.model_copy(
        update={"knowledge_reuse_rate": reuse_rate(script, research), "feedback_history": feedback}
    )


def _source_of_known_fact(fact: Learnt) -> Source:
    """Return a known fact's source. A fact stored without an origin may come from a model, so it is unsure."""
    is_known = fact.source.get("origin", "unknown") != "unknown"
    return Source(**{**fact.source, "confidence": fact.confidence if is_known else 0.0})


def reuse_rate(script: Script, research: Research) -> float:
    """Return the share of the script's facts that were known before."""
    known = {fact.text for fact in research.facts[: research.reused]}
    return round(sum(fact in known for fact in script.facts) / len(script.facts), 2) if script.facts else 0.0


longform.review("script_review", of=script_generation, send_back_to=[script_generation, research], **REVIEW_TIMES)


@longform.step(
    pool=VOICES,
    retry=RETRY,
    timeout=minutes(30),
    feedback=feedback_checks.check_narration_feedback,
    estimated_cost=estimates.estimate_narration,
)
async def audio_generation(
    voice: str, language: Language, script_review: Script, *, services: Services, ctx: Context
) -> Narration:
    return await narration.generate_narration(script_review, voice, language, services, ctx)


longform.review("audio_review", of=audio_generation, feedback_form=NarrationFeedback, **REVIEW_TIMES)


@longform.step(pool=FOOTAGE, retry=RETRY, timeout=minutes(30), feedback=feedback_checks.check_footage_feedback)
async def broll_search(
    language: Language, script_review: Script, audio_review: Narration, *, services: Services, ctx: Context
) -> Broll:
    return await footage.search_footage(script_review, audio_review, language, services, ctx)


longform.review("broll_review", of=broll_search, feedback_form=FootageFeedback, **REVIEW_TIMES)


@longform.step(
    pool=FILMS, retry=Retry(1, backoff=fixed_delay(30)), timeout=hours(2), feedback=feedback_checks.check_film_feedback
)
async def video_assembly(audio_review: Narration, broll_review: Broll, *, services: Services, ctx: Context) -> Assembly:
    return await footage.assemble_film(audio_review, broll_review, services, ctx)


@longform.step(after=video_assembly)
async def subtitle_gen(audio_review: Narration, *, ctx: Context) -> Subtitles:
    return Subtitles(
        srt=await ctx.save_file(srt(audio_review.lines).encode(), "subtitles.srt"),
        vtt=await ctx.save_file(vtt(audio_review.lines).encode(), "subtitles.vtt"),
    )


@longform.step(
    after="broll_review",
    pool=IMAGES,
    timeout=minutes(10),
    feedback=feedback_checks.check_thumbnail_feedback,
    estimated_cost=estimates.THUMBNAILS,
)
async def thumbnail_gen(
    topic: str, language: Language, script_review: Script, *, images: Images, ctx: Context
) -> Thumbnails:
    return await thumbnails.generate_thumbnails(topic, language, script_review, images, ctx)


longform.review(
    "final_review",
    of=[video_assembly, thumbnail_gen, subtitle_gen, "script_review", "broll_review"],
    form=FinalChoice,
    send_back_to=[video_assembly, thumbnail_gen, broll_search, audio_generation, script_generation],
    feedback_form=FinalFeedback,
    **REVIEW_TIMES,
)


@longform.step(retry=Retry(5, backoff=exponential(60)), timeout=hours(2), publishes=True)
async def upload(
    language: Language,
    scheduled_for: datetime | None,
    final_review: FinalChoice,
    script_review: Script,
    video_assembly: Assembly,
    thumbnail_gen: Thumbnails,
    broll_review: Broll,
    *,
    services: Services,
    ctx: Context,
) -> Upload:
    return await publishing.upload_video(
        final_review,
        script_review,
        video_assembly,
        thumbnail_gen,
        broll_review,
        language=language,
        scheduled_for=scheduled_for,
        services=services,
        ctx=ctx,
    )


@longform.step(after=upload)
async def knowledge_store(topic: str, language: Language, research: Research, *, ctx: Context) -> int:
    new = research.facts[research.reused :]
    learnt = [Learnt(fact.text, fact.source.model_dump(), fact.source.confidence) for fact in new]
    await ctx.remember(learnt, language=language, about=topic)
    return len(new)


@longform.step(after=knowledge_store)
async def analytics_init(
    language: Language, upload: Upload, script_review: Script, video_assembly: Assembly, *, ctx: Context
) -> Analytics:
    return Analytics(
        video_id=upload.video_id,
        url=upload.url,
        title=upload.title,
        channel=ctx.tenant,
        language=language,
        seconds=video_assembly.seconds,
        words=script_review.word_count,
        began_at=await ctx.now(),
    )


@longform.step(after=analytics_init, retry=Retry(3, backoff=exponential(60)))
async def publication(upload: Upload, *, services: Services, ctx: Context) -> Publication:
    return await publishing.check_published(upload, services, ctx)


longform.group("images", [thumbnail_gen])
longform.group("video", [video_assembly, subtitle_gen])


@video_batch.each("videos", on_failure="continue")
async def published_video(video: PlannedVideo, *, ctx: Context) -> Publication:
    """Wait for a video, which belongs to its channel: it takes its turn among the other videos of all channels."""
    results = await ctx.run_child(longform, video.brief, tenant=video.channel)
    return Publication.model_validate(results["publication"])
