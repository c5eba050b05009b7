"""The HTTP routes of stories."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from retoma import File
from retoma.records import Review, Run
from retoma.server import (
    Principal,
    Problem,
    build_file_url,
    document_problems,
    get_public_url,
    idempotency_key_header,
    require_scope,
)
from retoma_apps.media import topic_list
from retoma_apps.media.channels import check_own_channel
from retoma_apps.media.models import Language
from retoma_apps.media.topic_list import TopicList
from retoma_apps.stories.models import Approval, Order
from retoma_apps.stories.operations import costs, publishing, queue, stories
from retoma_apps.stories.operations.overview import Details, Overview, SceneOverview, get_details, get_overview
from retoma_apps.stories.operations.publishing import NotReady
from retoma_apps.stories.operations.stories import ScenePart, get_story_run
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.schemas import JobQueue, Story, StoryDetails, StoryPage
from retoma_apps.stories.services import Services
from retoma_apps.stories.steps.writing.bundled import NeedsLanguageModel

Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
Reviewer = Annotated[Principal, require_scope("reviews:write")]
Limit = Annotated[int, Query(ge=1, le=100)]
SceneId = Annotated[str, Path(pattern=r"^[1-9][0-9]{0,4}$")]
Key = Annotated[str | None, idempotency_key_header("The same key and body always return the same story.")]
PublishKey = Annotated[str | None, idempotency_key_header("The same key is the same decision: repeats have no effect.")]
RerunKey = Annotated[str | None, idempotency_key_header("The same key is the same rerun: repeats have no effect.")]
router = APIRouter(
    prefix="/stories", tags=["stories"], responses=document_problems(400, 401, 403, 404, 409, 413, 422, 429, 503)
)


class Publication(Approval):
    model_config = ConfigDict(frozen=True, extra="forbid")

    seen: int | None = Field(None, ge=1, le=10**6, description="The `revision` of the story that the person saw.")


class SceneRerun(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parts: list[ScenePart] = Field(
        [], max_length=3, description="By default the parts that failed, or if none did, the image and the audio."
    )


@router.post("", status_code=202, summary="Order a story", response_model=Story)
async def order_story(order: Order, by: Writer, key: Key = None) -> Response:
    check_own_channel(by, order.channel)
    services: Services = await by.client.get_resource("services", tenant=order.channel)
    try:
        run = await stories.order_story(by.client, order, services.writer, key=key)
    except NeedsLanguageModel as error:
        raise Problem(422, "NEEDS_LANGUAGE_MODEL", str(error)) from error
    shown = await _describe_run(by, await by.client.runs.get(run))
    return JSONResponse(shown, 202, {"Location": f"/stories/{run}"})


@router.get("", summary="List stories, newest first", response_model=StoryPage)
async def list_stories(
    by: Reader,
    channel: Annotated[str | None, Query(max_length=100)] = None,
    before: UUID | None = None,
    limit: Limit = 20,
) -> dict[str, Any]:
    runs = await by.client.runs.list(tenant=channel, pipeline=story.name, before=before, limit=limit)
    return {
        "stories": [await _describe_run(by, run) for run in runs],
        "next": str(runs[-1].id) if len(runs) == limit else None,
    }


@router.get("/jobs", summary="List the ready and running jobs of all stories, by type", response_model=JobQueue)
async def list_jobs(by: Reader) -> dict[str, Any]:
    found = await queue.get_queue(by.client)
    return {
        "counts": queue.count_by_type(found.jobs),
        "has_more_stories": found.has_more_stories,
        "jobs": [
            {
                "job_type": job.type,
                "story_id": str(job.story),
                "scene_id": job.scene,
                "language": job.language,
                "state": job.state,
            }
            for job in found.jobs
        ],
    }


@router.get("/topics", summary="List the topics that can be ordered")
async def list_topics(by: Reader, language: Language | None = None) -> TopicList:
    services: Services = await by.client.get_resource("services")
    return topic_list.list_topics(services.writer.topics, language)


@router.get("/{story_id:uuid}", summary="Get a story with its scenes", response_model=StoryDetails)
async def get_story(request: Request, story_id: UUID, by: Reader) -> dict[str, Any]:
    return await _describe_details(by, await get_story_run(by.client, story_id), request)


@router.post("/{story_id:uuid}/publish", status_code=202, summary="Publish a story", response_model=StoryDetails)
async def publish_story(
    request: Request,
    story_id: UUID,
    by: Reviewer,
    body: Annotated[Publication | None, Body()] = None,
    key: PublishKey = None,
) -> dict[str, Any]:
    """Approve a story that is `ready_for_review`, which uploads it. The first decision counts.

    A story that was published before keeps its video: texts, thumbnail and subtitles change in place. With `new_video`,
    its current film becomes a new video.
    """
    run = await get_story_run(by.client, story_id)
    given = body or Publication()
    approval = Approval.model_validate(given.model_dump(exclude={"seen"}))
    try:
        await publishing.publish_story(by.client, run, approval, by=by.name, via="api", seen=given.seen, key=key)
    except NotReady as error:
        raise Problem(409, "NOT_READY", str(error), status_of_story=error.status) from error
    return await _describe_details(by, await by.client.runs.get(run.id), request)


@router.post(
    "/{story_id:uuid}/scenes/{scene_id}/rerun",
    status_code=202,
    summary="Rerun one scene, and then the film",
    response_model=StoryDetails,
)
async def rerun_scene(
    request: Request,
    story_id: UUID,
    scene_id: SceneId,
    by: Writer,
    body: Annotated[SceneRerun | None, Body()] = None,
    key: RerunKey = None,
) -> dict[str, Any]:
    run = await get_story_run(by.client, story_id)
    await stories.rerun_scene(by.client, run, scene_id, body.parts if body else (), by=by.name, key=key)
    return await _describe_details(by, await by.client.runs.get(run.id), request)


async def _describe_run(by: Principal, run: Run) -> dict[str, Any]:
    return _describe(await get_overview(by.client, run))


def _describe(overview: Overview) -> dict[str, Any]:
    run, problem, upload = overview.run, overview.problem, overview.upload
    done, total = overview.scene_jobs
    return {
        "id": str(run.id),
        "topic": run.input["topic"],
        "channel": run.tenant,
        "language": run.input["language"],
        "languages": run.input["languages"],
        "status": overview.status,
        "revision": run.revision,
        "scenes": overview.scenes,
        "scene_jobs_done": done,
        "scene_jobs": total,
        "url": upload.url if upload else None,
        "earlier_urls": upload.earlier if upload else [],
        "error": {
            "job_type": problem.step,
            "scene_id": problem.item.partition("|")[0] or None,
            "code": problem.code,
            "message": problem.reason,
        }
        if problem
        else None,
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


async def _describe_details(by: Principal, run: Run, request: Request) -> dict[str, Any]:
    details, base = await get_details(by.client, run), get_public_url(request)

    def url_of(file: File) -> str:
        return f"{base}{build_file_url(run, file)}"

    tracks = details.film.tracks if details.film else []
    return _describe(details) | {
        "scene_list": [
            _describe_scene(details, each, url_of(each.image.image) if each.image else None)
            for each in details.scenes_shown
        ],
        "film_url": url_of(details.film.video) if details.film else None,
        "subtitles": [{"language": track.language, "url": url_of(track.vtt)} for track in tracks],
        "thumbnail_urls": [url_of(each.image) for each in (details.thumbnails.variants if details.thumbnails else [])],
        "metadata": details.metadata.model_dump(mode="json") if details.metadata else None,
        "approval": _describe_approval(details.approval),
        "published_film_is_current": None if details.upload is None else not details.shows_earlier_film,
        "refused": details.upload.refused if details.upload else [],
        "cost_micros": await costs.get_story_cost(by.client, run.id),
    }


def _describe_scene(details: Details, scene: SceneOverview, image_url: str | None) -> dict[str, Any]:
    return {
        "scene_id": scene.scene.id,
        "text": scene.scene.text,
        "visual": scene.scene.visual,
        "image_url": image_url,
        "jobs": [
            {
                "job_type": part.step,
                "story_id": str(details.run.id),
                "scene_id": scene.scene.id,
                "language": part.language,
                "state": part.state,
                "code": part.code,
            }
            for part in scene.parts
        ],
    }


def _describe_approval(review: Review | None) -> dict[str, Any] | None:
    if review is None or review.decided_by is None or review.decided_at is None:
        return None
    return {"by": review.decided_by, "at": review.decided_at.isoformat(), "via": review.via}
