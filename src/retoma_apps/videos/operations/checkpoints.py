"""The data of the four checkpoints in the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote
from uuid import UUID

from retoma import Client, File
from retoma.records import Review, Run, Subject
from retoma.reviews import Feedback
from retoma_apps.videos.models import Assembly, Broll, Narration, Script, Thumbnails

TYPES = ("script_review", "audio_review", "broll_review", "final_review")
PREVIEW_CHARACTERS = 300
Kind = Literal["audio", "broll", "video", "thumb"]


@dataclass(frozen=True)
class Links:
    """Links to a video's files that need no key for a day. `base` is the server's public address."""

    base: str
    query: Callable[[File], str]

    def url_of(self, kind: Kind, run: UUID, file: File) -> str:
        return f"{self.base}{file_url(kind, run, file)}{self.query(file)}"


def file_url(kind: Kind, run: UUID, file: File) -> str:
    """Return the address of a video's file, which needs a key."""
    return f"/api/v1/files/{kind}/{run}/{file.file}/{quote(file.name, safe='')}"


async def get_payload(client: Client, review: Review, base: str) -> dict[str, Any]:
    """Return a checkpoint with all data for the decision. `base` is the server's public address."""
    run = await client.runs.get(review.run)
    links = Links(base, await client.files.sign_links(run.id))
    subjects = await client.reviews.get_subjects(review)
    return {
        "checkpoint_id": str(review.id),
        "checkpoint_type": review.step,
        "video_id": str(review.run),
        "channel": review.tenant,
        "status": {"open": "pending", "sent_back": "revision_requested"}.get(review.state, str(review.state)),
        "revision": review.revision,
        "opened_at": review.opened_at.isoformat(),
        "due_at": review.due_at.isoformat() if review.due_at else None,
        "reviewer": review.decided_by,
        "reviewer_notes": review.notes,
        "reviewed_at": review.decided_at.isoformat() if review.decided_at else None,
        "decided": _format_decision(review) if review.decided_by else None,
        "can_go_back_to": list(review.can_send_back_to),
        "times_sent_back": review.times_sent_back,
        "review_url": f"{base}/reviews/{review.id}",
        "data": await _get_data(client, review, run, subjects, links),
    }


def _format_decision(review: Review) -> dict[str, Any]:
    """Return the decision besides its notes, under the field names of a decision request."""
    feedback = Feedback.from_json(review.feedback or {})
    decision = {
        "rewind_to": review.back_to,
        "clips": [int(item) for item in review.back_items if item.isdecimal()] or None,
        "comments": [comment.to_json() for comment in feedback.comments] or None,
        **feedback.extra,
        **(review.value if review.step == "final_review" and review.value else {"value": review.value}),
    }
    return {name: value for name, value in decision.items() if value is not None}


async def _get_data(
    client: Client, review: Review, run: Run, subjects: dict[str, Subject], links: Links
) -> dict[str, Any]:
    match review.step:
        case "script_review":
            return script_data(run, Script.model_validate(subjects["script_generation"].value))
        case "audio_review":
            spoken = subjects["audio_generation"]
            script = await _get_narrated_script(client, run, spoken.revision)
            return audio_data(run, Narration.model_validate(spoken.value), script, links)
        case "broll_review":
            return broll_data(run, Broll.model_validate(subjects["broll_search"].value), links)
        case "final_review":
            return final_data(
                run,
                Assembly.model_validate(subjects["video_assembly"].value),
                Thumbnails.model_validate(subjects["thumbnail_gen"].value),
                Script.model_validate(subjects["script_review"].value),
                Broll.model_validate(subjects["broll_review"].value) if "broll_review" in subjects else None,
                links,
            )
        case _:  # a step that asks for help
            return {"topic": run.input["topic"], "reason": review.reason}


async def _get_narrated_script(client: Client, run: Run, revision: int) -> Script:
    """Return the script that was approved when this revision of the narration was generated."""
    approved = await client.runs.get_step_history(run.id, "script_review", limit=run.revision)
    return Script.model_validate(next(one.output for one in approved if one.revision <= revision))


def script_data(run: Run, script: Script) -> dict[str, Any]:
    return {
        "topic": run.input["topic"],
        "title": script.title,
        "script_full": script.text,
        "scenes": [scene.model_dump() for scene in script.scenes],
        "word_count": script.word_count,
        "quality_report": script.quality.model_dump(),
        "research_sources": [source.model_dump() for source in script.sources],
        "facts_used": script.facts_used,
        "knowledge_reuse_rate": script.knowledge_reuse_rate,
    }


def audio_data(run: Run, narration: Narration, script: Script, links: Links) -> dict[str, Any]:
    return {
        "audio_url": links.url_of("audio", run.id, narration.audio),
        "duration_seconds": round(narration.seconds, 2),
        "voice_used": narration.voice,
        "rate": narration.rate,
        "script_text": script.text,
        "lines": [line.model_dump() for line in narration.lines],
    }


def broll_data(run: Run, broll: Broll, links: Links) -> dict[str, Any]:
    return {
        "clips": [
            {
                "number": number,
                "thumbnail_url": links.url_of("broll", run.id, clip.thumbnail),
                "preview_url": links.url_of("broll", run.id, clip.video),
                "source": clip.source,
                "query_used": clip.query,
                "duration_seconds": round(clip.seconds, 2),
                "own_duration_seconds": round(clip.own_seconds, 2),
                "relevance_score": clip.relevance,
                "scene": clip.scene + 1,
                "author": clip.author,
                "url": clip.url,
            }
            for number, clip in enumerate(broll.clips, 1)
        ],
        "total_clips": len(broll.clips),
        "total_duration": round(broll.total_seconds, 2),
        "audio_duration": round(broll.audio_seconds, 2),
        "coverage_percentage": broll.coverage,
    }


def final_data(
    run: Run, film: Assembly, thumbnails: Thumbnails, script: Script, broll: Broll | None, links: Links
) -> dict[str, Any]:
    return {
        "video_preview_url": links.url_of("video", run.id, film.video),
        "duration_seconds": round(film.seconds, 2),
        "resolution": f"{film.width}x{film.height}",
        "file_size_mb": round(film.size / 1e6, 2),
        "subtitles": film.subtitles,
        "thumbnail_variants": [
            {"number": number, "url": links.url_of("thumb", run.id, variant.image), "text": variant.text}
            for number, variant in enumerate(thumbnails.variants, 1)
        ],
        "metadata": {"title": script.title, "description": script.description, "tags": script.tags},
        "credits": broll.credits if broll else [],
        "scheduled_for": run.input.get("scheduled_for"),
    }


async def get_summary(client: Client, review: Review) -> dict[str, Any]:
    """Return a row of a batch."""
    run = await client.runs.get(review.run)
    results = await client.runs.get_results(review.run)
    script = results.get("script_review") or results.get("script_generation")
    return {
        "checkpoint_id": str(review.id),
        "checkpoint_type": review.step,
        "video_id": str(review.run),
        "video_title": script["title"] if script else run.input["topic"],
        "channel": review.tenant,
        "revision": review.revision,
        "opened_at": review.opened_at.isoformat(),
        "due_at": review.due_at.isoformat() if review.due_at else None,
        "script_preview": Script.model_validate(script).text[:PREVIEW_CHARACTERS] if script else "",
    }
