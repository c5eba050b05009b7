"""The outcome of a job, as the callback and `GET /jobs/{jobId}` report it: a result, an error, or both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from retoma import Client
from retoma.records import Run
from retoma_apps.gpu.pipeline import TIMEOUT
from retoma_apps.gpu.states import status_of

SUCCESS_MESSAGES = {
    "img2vid": "Images converted to videos successfully",
    "caption": "Captions added to the video successfully",
    "addaudio": "Audio added to the video successfully",
}
GPU_STEPS = ("clips", "lone_clip", "captioned", "with_audio")
MULTI_STATUS = 207
MAX_LISTED_FAILURES = 20


async def get_started_at(client: Client, run: Run) -> datetime | None:
    """Return when the first part of this revision got a worker; a rerun does not count earlier work.

    For a rerun in which every part was retried, return when the first of these attempts ended: no more is recorded.
    """
    first = (await client.runs.get_start_times([run.id])).get(run.id)
    if first is None or run.revision == 1:
        return first
    parked = {
        (each.step, each.item, each.revision): each.started_at or each.parked_at
        for each in await client.external_work.list(run.id)
    }
    starts = [
        min(job.started_at, parked.get((job.step, job.item, job.revision), job.started_at))
        for job in await client.runs.list_jobs(run.id, revision=run.revision)
        if job.step in GPU_STEPS and job.revision == run.revision and job.started_at is not None
    ]
    retries = await client.runs.list_events(run.id, kinds=["retry"])
    ends = [event.at for event in retries if event.step in GPU_STEPS and event.revision == run.revision]
    return min([*starts, *ends], default=None)


async def get_outcome(client: Client, run: Run, started_at: datetime | None) -> dict[str, Any]:
    """Return `result`, `error`, both or neither, by the run's final state. Empty while it runs."""
    if run.ended_at is None:
        return {}
    match status_of(run.state, started=True):
        case "COMPLETED":
            return {
                "result": {"code": 200, "message": SUCCESS_MESSAGES[run.pipeline], **await _get_outputs(client, run)}
            }
        case "FAILED" if run.state == "completed_with_errors":
            return await _get_partial_outcome(client, run)
        case "FAILED":
            error = await _get_error(client, run, started_at)
            return {**(await _get_finished_videos(client, run) if error["code"] == TIMEOUT else {}), "error": error}
        case _:
            return {}


def format_execution(run: Run, started_at: datetime | None) -> dict[str, Any]:
    """Return the time from the first part's start to the job's end."""
    took = duration(run, started_at)
    return {
        "startTime": format_time(started_at),
        "endTime": format_time(run.ended_at),
        "durationMs": round(took.total_seconds() * 1000),
        "durationSeconds": round(took.total_seconds()),
    }


def duration(run: Run, started_at: datetime | None) -> timedelta:
    """Return the difference between the two times as shown, in whole milliseconds."""
    if started_at is None or run.ended_at is None:
        return timedelta(0)
    return max(_truncate_to_milliseconds(run.ended_at) - _truncate_to_milliseconds(started_at), timedelta(0))


def format_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _truncate_to_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


async def _get_outputs(client: Client, run: Run) -> dict[str, Any]:
    results = await client.runs.get_results(run.id, revision=run.revision)
    if run.pipeline == "img2vid":
        return {"videos": results["videos"]}
    return {"video_url": results["captioned" if run.pipeline == "caption" else "with_audio"]["video_url"]}


async def _get_partial_outcome(client: Client, run: Run) -> dict[str, Any]:
    """Report that some images have no video. If none has one, the job has no result."""
    videos = (await client.runs.get_results(run.id, revision=run.revision)).get("videos", [])
    failed = await _list_failed_images(client, run)
    named = "; ".join(f"{fault['id']}: {fault['message']}" for fault in failed[:MAX_LISTED_FAILURES])
    if not videos:
        error = {"code": "PROCESSING_ERROR", "message": failed[0]["message"], "details": f"Failed images: {named}"}
        return {"error": error}
    message = f"{len(failed)} of {len(run.input['images'])} images failed"
    return {
        "result": {"code": MULTI_STATUS, "message": message, "videos": videos, "failed": failed},
        "error": {"code": "PARTIAL_FAILURE", "message": message, "details": f"Failed images: {named}"},
    }


async def _get_finished_videos(client: Client, run: Run) -> dict[str, Any]:
    """Return the videos finished before the timeout, and the images without one. Empty if there are no videos."""
    results = await client.runs.get_results(run.id, revision=run.revision)
    rendered = [video for part in results.get("clips", {}).values() for video in part["videos"]]
    found = {video["id"]: video for video in [*rendered, *results.get("lone_clip", {}).values()]}
    if not found:
        return {}
    ids = [str(image["id"]) for image in run.input["images"]]
    faults = await _get_image_errors(client, run)
    late = "Image {} was not rendered before the job timed out"
    failed = [faults.get(each, _build_fault(each, TIMEOUT, late)) for each in ids if each not in found]
    message = f"{len(failed)} of {len(ids)} images have no video"
    videos = [found[each] for each in ids if each in found]
    return {"result": {"code": MULTI_STATUS, "message": message, "videos": videos, "failed": failed}}


async def _list_failed_images(client: Client, run: Run) -> list[dict[str, str]]:
    """Return them in the order of the request."""
    faults = await _get_image_errors(client, run)
    failed = {
        job.item
        for job in await client.runs.list_jobs(run.id, revision=run.revision)
        if job.step == "lone_clip" and job.state != "succeeded"
    }
    ids: Sequence[str] = [str(image["id"]) for image in run.input["images"]]
    return [
        faults.get(each, _build_fault(each, "PROCESSING_ERROR", "Image {} could not be rendered"))
        for each in ids
        if each in failed
    ]


async def _get_image_errors(client: Client, run: Run) -> dict[str, dict[str, str]]:
    """Return the last errors of images that were rendered alone."""
    errors = await client.runs.get_errors(run.id, revision=run.revision, with_stack=False)
    return {
        item: {"id": item, "code": str(error.get("code")), "message": str(error.get("message"))}
        for (step, item), error in errors.items()
        if step == "lone_clip"
    }


def _build_fault(image: str, code: str, message: str) -> dict[str, str]:
    return {"id": image, "code": code, "message": message.format(image)}


async def _get_error(client: Client, run: Run, started_at: datetime | None) -> dict[str, str]:
    """Return the error that stopped the job. Its other parts were only stopped with it."""
    errors = await client.runs.get_errors(run.id, revision=run.revision, with_stack=False)
    if (timeout := errors.get(("", ""))) is not None:
        return _format_timeout(run, started_at, timeout)
    final = {
        (job.step, job.item)
        for job in await client.runs.list_jobs(run.id, revision=run.revision)
        if job.state in ("failed", "quarantined")
    }
    found = [(item, error) for (step, item), error in errors.items() if (step, item) in final]
    if not found:
        return {"code": "PROCESSING_ERROR", "message": "the job was stopped"}
    item, error = found[0]
    if error.get("code") == TIMEOUT:
        return _format_timeout(run, started_at, error)
    details = f"{error.get('code')}{f' in part {item}' if item else ''}"
    return {"code": "PROCESSING_ERROR", "message": str(error.get("message")), "details": details}


def _format_timeout(run: Run, started_at: datetime | None, error: dict[str, Any]) -> dict[str, str]:
    elapsed = round(duration(run, started_at).total_seconds() * 1000)
    message = f"Job timed out after {elapsed}ms" if started_at else "Job timed out before a worker was free"
    return {"code": TIMEOUT, "message": message, "details": str(error.get("message"))}
