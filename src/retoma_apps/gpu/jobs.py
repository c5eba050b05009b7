"""Jobs as `GET /jobs` shows them, from what is stored; the GPU host is not asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from retoma import Client
from retoma_apps.gpu.image_chunks import ImageChunk
from retoma_apps.gpu.pipeline import GPU
from retoma_apps.gpu.results import GPU_STEPS, Run, format_time, get_outcome, get_started_at
from retoma_apps.gpu.states import job_id, status_of


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
    outside = await client.external_work.list(run.id)
    began_at = await get_started_at(client, run)  # after the jobs: of one that has a worker the beginning is known
    shown = job_summary(run, began_at)
    is_under_way = shown["status"] == "IN_PROGRESS"
    done, total = _count_finished(run, jobs, outside)
    found = await get_outcome(client, run, began_at)
    waits = [] if run.ended_at else await client.runs.list_waits(run.id)
    progresses = run.state != "stuck" and not any(wait.reason == "no_worker" for wait in waits)
    return shown | {
        "progress": _format_progress(done, total) if is_under_way else None,
        "estimatedCompletion": format_time(await _estimate_completion(client, run, began_at))
        if is_under_way and progresses
        else None,
        "webhookUrl": run.input.get("webhook_url"),
        "data": run.input.get("received") or run.input,
        "runpodJobIds": [str(each.external_id).rpartition("/")[2] for each in outside],
        "workersReserved": sum(job.state in ("running", "parked") for job in jobs if job.step in GPU_STEPS),
        "attempts": {
            _job_label(job): tried for job in jobs if job.step in GPU_STEPS and (tried := _count_attempts(job))
        },
        "waiting": [wait.explanation for wait in waits],
        **found,
    }


def _count_finished(run: Run, jobs: Sequence[Any], external_work: Sequence[Any]) -> tuple[int, int]:
    """How many images have their videos, of how many; of the other operations, how many videos."""
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


def _format_progress(done: int, total: int) -> dict[str, Any]:
    return {"completed": done, "total": total, "percentage": round(100 * done / total, 2)}


async def _estimate_completion(client: Client, run: Run, started_at: datetime | None) -> datetime | None:
    """By the pace of the parts that have ended; before the first has, by the seconds of video that are asked for.

    It is never past: what takes longer than that may end at any moment.
    """
    if (paced := await client.runs.estimate_end(run.id)) is not None or started_at is None:
        return paced
    (pool,) = await client.pools.list(GPU.name)  # there, since the job has begun in it
    seconds = sum(image["duracao"] for image in run.input.get("images", ())) / max(1, pool.capacity)
    return max(await client.now(), started_at + timedelta(seconds=max(60.0, seconds)))


def _count_attempts(job: Any) -> int:
    """A try is given back while its work goes on outside, and counted again at its end."""
    return int(job.attempt) + int(job.state == "parked")


def _job_label(job: Any) -> str:
    return f"{job.step}:{job.item}" if job.item else str(job.step)
