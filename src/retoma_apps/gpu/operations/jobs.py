"""Jobs as `GET /jobs` shows them, from stored data; the GPU host is not queried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from retoma import Client
from retoma.records import Run, Wait, WaitReason
from retoma_apps.gpu.operations.results import GPU_STEPS, format_time, get_outcome, get_started_at
from retoma_apps.gpu.pipeline import GPU
from retoma_apps.gpu.states import job_id, status_of
from retoma_apps.gpu.steps.image_chunks import ImageChunk


def job_summary(run: Run, started_at: datetime | None) -> dict[str, Any]:
    return {
        "jobId": job_id(run.id),
        "status": status_of(run.state, started=started_at is not None),
        "operation": run.pipeline,
        "id_roteiro": run.input.get("id_roteiro"),
        "createdAt": format_time(run.created_at),
        "startedAt": format_time(started_at),
        "completedAt": format_time(run.ended_at),
    }


async def get_job_details(client: Client, run: Run) -> dict[str, Any]:
    jobs = [job for job in await client.runs.list_jobs(run.id) if job.step in GPU_STEPS or job.step == "parts"]
    external_work = await client.external_work.list(run.id)
    started_at = await get_started_at(client, run)  # after the jobs: a job with a worker then has a start
    summary = job_summary(run, started_at)
    is_in_progress = summary["status"] == "IN_PROGRESS"
    done, total = _count_finished(run, jobs, external_work)
    outcome = await get_outcome(client, run, started_at)
    waits = [] if run.ended_at else await client.runs.list_waits(run.id)
    progresses = run.state not in ("stuck", "needs_review") and not any(
        wait.reason == WaitReason.NO_WORKER for wait in waits
    )
    return summary | {
        "progress": {"completed": done, "total": total, "percentage": round(100 * done / total, 2)}
        if is_in_progress
        else None,
        "estimatedCompletion": format_time(await _estimate_completion(client, run, started_at))
        if is_in_progress and progresses
        else None,
        "webhookUrl": run.input.get("webhook_url"),
        "data": run.input.get("received") or run.input,
        "runpodJobIds": [str(each.external_id).rpartition("/")[2] for each in external_work],
        "workersReserved": _count_workers(jobs, waits),
        "attempts": {
            f"{job.step}:{job.item}" if job.item else job.step: attempts
            for job in jobs
            if job.step in GPU_STEPS and (attempts := _count_attempts(job))
        },
        "waiting": [wait.explanation for wait in waits],
        **outcome,
    }


def _count_workers(jobs: Sequence[Any], waits: Sequence[Wait]) -> int:
    """Return how many workers the jobs hold. A job that waits for a person because of a budget holds none."""
    held = sum(job.state in ("running", "parked") for job in jobs if job.step in GPU_STEPS)
    return max(0, held - sum(wait.jobs for wait in waits if wait.reason is WaitReason.PERSON))


def _count_finished(run: Run, jobs: Sequence[Any], external_work: Sequence[Any]) -> tuple[int, int]:
    """Return how many images have their videos, and how many there are; for other operations, the same of videos."""
    if run.pipeline != "img2vid":
        return sum(job.state == "succeeded" for job in jobs), 1
    parts: list[Any] = next((job.output for job in jobs if job.step == "parts" and job.output), [])
    rendered = sum(len(job.output["videos"]) for job in jobs if job.step == "clips" and job.output)
    alone = sum(job.step == "lone_clip" and job.state == "succeeded" for job in jobs)
    under_way = sum(
        math.floor((each.progress or 0) * ImageChunk.model_validate(parts[int(each.item)]).count)
        for each in external_work
        if each.step == "clips" and each.ended_at is None
    )
    return rendered + alone + under_way, len(run.input["images"])


async def _estimate_completion(client: Client, run: Run, started_at: datetime | None) -> datetime | None:
    """Estimate by the pace of the finished parts; before the first has finished, by the requested seconds of video.

    The estimate is never in the past: overdue work may finish at any moment.
    """
    if (estimate := await client.runs.estimate_end(run.id)) is not None or started_at is None:
        return estimate
    (pool,) = await client.pools.list(GPU.name)  # it exists, since the job started in it
    seconds = sum(image["duracao"] for image in run.input.get("images", ())) / max(1, pool.capacity)
    return max(await client.now(), started_at + timedelta(seconds=max(60.0, seconds)))


def _count_attempts(job: Any) -> int:
    """Return the attempts. The count is decremented while the work runs externally, and incremented at its end."""
    return int(job.attempt) + int(job.state == "parked")
