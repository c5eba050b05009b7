"""The fifteen steps of a video, four of them people's, and a look at the end whether it is out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

from retoma import Context, Pipeline, Pool, Retry, exponential, fixed, hours, minutes
from retoma.records import Fact as Learnt
from retoma_apps.providers.llm import Usage
from retoma_apps.videos import feedback, filming, narrating, picturing, publishing
from retoma_apps.videos.media.subtitles import srt, vtt
from retoma_apps.videos.models import (
    Analytics,
    Assembly,
    Brief,
    Broll,
    Fact,
    FinalChoice,
    FinalWishes,
    FootageWishes,
    Known,
    Language,
    Narration,
    NarrationWishes,
    Publication,
    Research,
    Script,
    Source,
    Subtitles,
    Thumbnails,
    Upload,
)
from retoma_apps.videos.studio import Studio
from retoma_apps.videos.wishes import former_of, wishes_with
from retoma_apps.videos.writing.port import Paid


class Times(TypedDict):
    due: timedelta
    remind: timedelta
    escalate: timedelta
    escalate_to: str


TIMES: Times = {"due": hours(2), "remind": hours(2), "escalate": hours(4), "escalate_to": "editor"}
"""A review should be decided within two hours; then an event says that it waits, and later it is the editor's."""
MOST_FACTS = 30
# What channels share. None may take all of it: a long backlog of one keeps no other waiting.
WRITER = Pool("writer", capacity=8, per_tenant=4)
VOICES = Pool("voices", capacity=8, per_tenant=4)
FOOTAGE = Pool("footage", capacity=4, per_tenant=2)
IMAGES = Pool("images", capacity=4, per_tenant=2)
FILMS = Pool("films", capacity=2, per_tenant=1)

longform = Pipeline("longform", Brief, retry=Retry(2, backoff=fixed(5)))


@longform.step(retry=Retry(3, backoff=exponential(2)))
async def knowledge_query(topic: str, language: Language, *, ctx: Context) -> Known:
    learnt = await ctx.recall(topic, language=language, limit=MOST_FACTS)
    return Known(facts=[Fact(text=fact.text, source=_recalled(fact)) for fact in learnt])


@longform.step(pool=WRITER, retry=Retry(3, backoff=exponential(5)), timeout=minutes(5), feedback=feedback.for_research)
async def research(
    topic: str, language: Language, style: str, knowledge_query: Known, *, studio: Studio, ctx: Context
) -> Research:
    brief, known = Brief(topic=topic, language=language, style=style), knowledge_query.facts
    former = former_of(Research, topic, language, ctx)
    wishes = wishes_with(former.wishes if former else [], ctx)

    async def look() -> list[dict[str, Any]]:
        found = await studio.writer.research(brief, known, wishes, paid=_charging(studio, ctx))
        return [fact.model_dump() for fact in found.facts]

    facts = [*known, *map(Fact.model_validate, await ctx.once("research", look))]
    return Research(topic=topic, language=language, wishes=wishes, facts=facts, reused=len(known))


@longform.step(pool=WRITER, retry=Retry(2, backoff=fixed(10)), timeout=minutes(5), feedback=feedback.for_script)
async def script_generation(
    topic: str, language: Language, style: str, seconds: int, research: Research, *, studio: Studio, ctx: Context
) -> Script:
    brief = Brief(topic=topic, language=language, style=style, seconds=seconds)
    former = former_of(Script, topic, language, ctx)
    met = former.wishes if former else []
    wishes = wishes_with([*met, *(wish for wish in research.wishes if wish not in met)], ctx)

    async def write() -> dict[str, Any]:
        written = await studio.writer.script(
            brief,
            research.facts,
            wishes=wishes,
            former=former if wishes != met else None,
            paid=_charging(studio, ctx),
        )
        return written.script.model_dump()

    script = Script.model_validate(await ctx.once("script", write))
    return script.model_copy(update={"knowledge_reuse_rate": reuse_rate(script, research), "wishes": wishes})


def _recalled(fact: Learnt) -> Source:
    """Where a known fact comes from. One that was stored before its origin was kept may be a model's, and is unsure."""
    is_known = fact.source.get("origin", "unknown") != "unknown"
    return Source(**{**fact.source, "confidence": fact.confidence if is_known else 0.0})


def reuse_rate(script: Script, research: Research) -> float:
    """Which share of the facts that the script uses was known before."""
    known = {fact.text for fact in research.facts[: research.reused]}
    return round(sum(fact in known for fact in script.facts) / len(script.facts), 2) if script.facts else 0.0


longform.review("script_review", of=script_generation, send_back_to=[script_generation, research], **TIMES)


@longform.step(
    pool=VOICES, retry=Retry(3, backoff=exponential(5)), timeout=minutes(30), feedback=feedback.for_narration
)
async def audio_generation(
    voice: str, language: Language, script_review: Script, *, studio: Studio, ctx: Context
) -> Narration:
    return await narrating.narrated(script_review, voice, language, studio, ctx)


longform.review("audio_review", of=audio_generation, feedback_form=NarrationWishes, **TIMES)


@longform.step(pool=FOOTAGE, retry=Retry(3, backoff=exponential(5)), timeout=minutes(30), feedback=feedback.for_footage)
async def broll_search(
    language: Language, script_review: Script, audio_review: Narration, *, studio: Studio, ctx: Context
) -> Broll:
    return await filming.searched(script_review, audio_review, language, studio, ctx)


longform.review("broll_review", of=broll_search, feedback_form=FootageWishes, **TIMES)


@longform.step(pool=FILMS, retry=Retry(1, backoff=fixed(30)), timeout=hours(2), feedback=feedback.for_film)
async def video_assembly(audio_review: Narration, broll_review: Broll, *, studio: Studio, ctx: Context) -> Assembly:
    return await filming.assembled(audio_review, broll_review, studio, ctx)


@longform.step(after=video_assembly)
async def subtitle_gen(audio_review: Narration, *, ctx: Context) -> Subtitles:
    return Subtitles(
        srt=await ctx.save_file(srt(audio_review.lines).encode(), "subtitles.srt"),
        vtt=await ctx.save_file(vtt(audio_review.lines).encode(), "subtitles.vtt"),
    )


@longform.step(
    after="broll_review",
    pool=IMAGES,
    retry=Retry(2, backoff=fixed(5)),
    timeout=minutes(10),
    feedback=feedback.for_thumbnails,
)
async def thumbnail_gen(
    topic: str, language: Language, script_review: Script, *, studio: Studio, ctx: Context
) -> Thumbnails:
    return await picturing.pictured(topic, language, script_review, studio, ctx)


longform.review(
    "final_review",
    of=[video_assembly, thumbnail_gen, subtitle_gen, "script_review", "broll_review"],
    form=FinalChoice,
    send_back_to=[video_assembly, thumbnail_gen],
    feedback_form=FinalWishes,
    **TIMES,
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
    studio: Studio,
    ctx: Context,
) -> Upload:
    return await publishing.uploaded(
        final_review,
        script_review,
        video_assembly,
        thumbnail_gen,
        broll_review,
        language=language,
        scheduled_for=scheduled_for,
        studio=studio,
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
async def publication(upload: Upload, *, studio: Studio, ctx: Context) -> Publication:
    return await publishing.seen_published(upload, studio, ctx)


longform.group("images", [thumbnail_gen])
longform.group("video", [video_assembly, subtitle_gen])


def _charging(studio: Studio, ctx: Context) -> Paid:
    def charge(usage: Usage) -> None:
        tokens = {"tokens_in": usage.prompt_tokens, "tokens_out": usage.completion_tokens}
        ctx.charge("openrouter", studio.writer.name, **tokens, micros=usage.cost)

    return charge
