"""Jobs as `GET /jobs` shows them, from what is stored; the GPU host is not asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from retoma import Client
from retoma_apps.gpu.outcomes import POOLED, Run, began, moment, outcome
from retoma_apps.gpu.parts import Part
from retoma_apps.gpu.pipelines import GPU
from retoma_apps.gpu.states import job_id, status_of


def summary(run: Run, began_at: datetime | None) -> dict[str, Any]:
    return {
        "jobId": job_id(run.id),
        "status": status_of(run.state, begun=began_at is not None),
        "operation": run.pipeline,
        "id_roteiro": run.input.get("id_roteiro"),
        "createdAt": moment(run.created_at),
        "startedAt": moment(began_at),
        "completedAt": moment(run.ended_at),
    }


async def details(client: Client, run: Run) -> dict[str, Any]:
    jobs = [job for job in await client.jobs(run.id) if job.step in POOLED or job.step == "parts"]
    outside = await client.outside(run.id)
    began_at = await began(client, run)  # after the jobs: of one that has a worker the beginning is known
    shown = summary(run, began_at)
    is_under_way = shown["status"] == "IN_PROGRESS"
    done, total = _finished(run, jobs, outside)
    found = await outcome(client, run, began_at)
    waits = [] if run.ended_at else await client.waits(run.id)
    progresses = run.state != "stuck" and not any(wait.reason == "no_worker" for wait in waits)
    return shown | {
        "progress": _progress(done, total) if is_under_way else None,
        "estimatedCompletion": moment(await _estimate(client, run, began_at)) if is_under_way and progresses else None,
        "webhookUrl": run.input.get("webhook_url"),
        "data": run.input.get("received") or run.input,
        "runpodJobIds": [str(each.handle).rpartition("/")[2] for each in outside],
        "workersReserved": sum(job.state in ("running", "parked") for job in jobs if job.step in POOLED),
        "attempts": {_part(job): tried for job in jobs if job.step in POOLED and (tried := _tries(job))},
        "waiting": [wait.why for wait in waits],
        **found,
    }


def _finished(run: Run, jobs: Sequence[Any], outside: Sequence[Any]) -> tuple[int, int]:
    """How many images have their videos, of how many; of the other operations, how many videos."""
    if run.pipeline != "img2vid":
        return sum(job.state == "succeeded" for job in jobs), 1
    parts: list[Any] = next((job.output for job in jobs if job.step == "parts" and job.output), [])
    rendered = sum(len(job.output["videos"]) for job in jobs if job.step == "clips" and job.output)
    alone = sum(job.step == "lone_clip" and job.state == "succeeded" for job in jobs)
    under_way = sum(
        math.floor((each.progress or 0) * Part.model_validate(parts[int(each.item)]).count)
        for each in outside
        if each.step == "clips" and each.ended_at is None
    )
    return rendered + alone + under_way, len(run.input["images"])


def _progress(done: int, total: int) -> dict[str, Any]:
    return {"completed": done, "total": total, "percentage": round(100 * done / total, 2)}


async def _estimate(client: Client, run: Run, began_at: datetime | None) -> datetime | None:
    """By the pace of the parts that have ended; before the first has, by the seconds of video that are asked for.

    It is never past: what takes longer than that may end at any moment.
    """
    if (paced := await client.estimate(run.id)) is not None or began_at is None:
        return paced
    (pool,) = await client.pools(GPU.name)  # there, since the job has begun in it
    seconds = sum(image["duracao"] for image in run.input.get("images", ())) / max(1, pool.capacity)
    return max(await client.now(), began_at + timedelta(seconds=max(60.0, seconds)))


def _tries(job: Any) -> int:
    """A try is given back while its work goes on outside, and counted again at its end."""
    return int(job.attempt) + int(job.state == "parked")


def _part(job: Any) -> str:
    return f"{job.step}:{job.item}" if job.item else str(job.step)
