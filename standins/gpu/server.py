"""RunPod's routes over a Fleet, with injectable faults."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from retoma import GiveUp, PollResult
from retoma.outgoing import Guard, HttpClient, NoResponse, UnsafeUrl
from retoma_apps.providers.gpu.port import GpuHost
from retoma_apps.providers.gpu.render_requests import filename
from standins.faults import Faults as CommonFaults
from standins.gpu.fleet import Fleet, Job, Status
from standins.server import Routes, StandInServer, read_bearer

LARGEST_BODY = 10 * 1024**2
_WEBHOOK_TRIES = 3
_WEBHOOK_DELAY = 10.0
_TICK = 0.05
_LEAST_EXECUTION_MS, _LEAST_TTL_MS, _MOST_MS = 5_000, 10_000, 7 * 86_400_000


@dataclass
class Faults(CommonFaults):
    """`latency`, `truncated_body` and `lost_replies` apply to submissions."""

    broken_after: int = 0
    """Submissions that are accepted but get a 502."""
    bad_images: set[str] = field(default_factory=set)
    """Their job fails with a message that names the first of them; with `partial` they are only listed, by `code`."""
    partial: bool = False
    code: str = "CORRUPT_IMAGE"
    mute_images: set[str] = field(default_factory=set)
    """Their job ends COMPLETED without output."""
    fail: set[str] = field(default_factory=set)
    """Operations whose jobs all end FAILED."""


@dataclass
class _Call:
    """A pending webhook."""

    url: str
    body: dict[str, Any]
    due_at: float
    tries: int = 0


class StandIn(StandInServer[Faults]):
    """With `manual`, time moves only with `advance`. With `twin`, that host really does the work."""

    path = "/v2"

    def __init__(
        self,
        *,
        workers: int = 3,
        manual: bool = False,
        key: str | None = None,
        seconds: Callable[[Job], float] | None = None,
        seconds_per_image: float = 1.0,
        queue_seconds: float = 0.0,
        cancel_seconds: float = 0.0,
        retention: float = 1800.0,
        files_url: str = "https://files.invalid",
        ledger: Path | None = None,
        twin: GpuHost | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(Faults(), key=key, seed=seed)
        self.submits: Counter[str] = Counter()
        """How often each key was submitted and accepted."""
        self.duplicates = 0
        """Submissions of a key whose work was running or had succeeded: paid for twice."""
        self.refused: Counter[int] = Counter()
        self.webhooks: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        """How often the status of each job was requested."""
        self.fleet = Fleet(
            workers,
            seconds or _never_by_itself if twin else seconds or _by_images(seconds_per_image),
            self._outcome,
            queue_seconds=queue_seconds,
            cancel_seconds=cancel_seconds,
            retention=retention,
        )
        self._manual = manual
        self._now = 0.0
        self._files_url = files_url
        self._ledger = ledger
        self._twin = twin
        self._handles: dict[str, str] = {}
        self._calls: list[_Call] = []
        self._turn = asyncio.Lock()

    def variables(self, base_url: str) -> dict[str, str]:
        return {"RUNPOD_BASE_URL": base_url}

    @property
    def now(self) -> float:
        return self._now if self._manual else time.monotonic()

    @property
    def jobs(self) -> list[Job]:
        return list(self.fleet.jobs.values())

    async def advance(self, seconds: float = 0.0) -> None:
        """Advance the clock and process everything that becomes due, including webhooks."""
        self._now += seconds
        await self.tick()

    async def tick(self) -> None:
        async with self._turn:
            self._settle()
            if self._twin is not None:
                await self._follow_twin(self._twin)
            await self._send_webhooks()

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        async with super().serving(host, port) as base_url:
            ticking = asyncio.create_task(self._keep_ticking())
            try:
                yield base_url
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    def tally(self) -> dict[str, Any]:
        """Return the counts that tests compare with ours."""
        return {
            "submits": sum(self.submits.values()),
            "keys": len(self.submits),
            "duplicates": self.duplicates,
            "refused": {str(status): count for status, count in self.refused.items()},
            "webhooks": dict(self.webhooks),
            "jobs": dict(Counter(job.status for job in self.jobs)),
        }

    async def _keep_ticking(self) -> None:
        while not self._manual:
            await self.tick()
            await asyncio.sleep(_TICK)

    def _settle(self) -> None:
        self.fleet.settle(self.now)
        for job in self.fleet.ended:
            self._note("ended", job)
            if job.webhook is not None:
                self._calls.append(_Call(job.webhook, self._describe(job), job.ended_at or 0.0))
        self.fleet.ended.clear()

    async def _follow_twin(self, twin: GpuHost) -> None:
        for job in self.fleet.running:
            report = await self._poll_twin(twin, job)
            if report.is_final:
                status: Status = "COMPLETED" if report.state == "succeeded" else "FAILED"
                self.fleet.end(job, status, report.result, None if status == "COMPLETED" else report.message)
        self._settle()

    async def _poll_twin(self, twin: GpuHost, job: Job) -> PollResult:
        """Return the twin's status of a job, after submitting it if it is new. A rejected job has failed."""
        if job.id not in self._handles:
            operation, longest = job.input.get("operation", ""), timedelta(seconds=job.longest)
            try:
                self._handles[job.id] = await twin.submit(operation, job.input, key=job.id, timeout=longest)
            except (GiveUp, OSError) as error:
                return PollResult("failed", message=str(error))
        return await twin.status(self._handles[job.id])

    async def _send_webhooks(self) -> None:
        for call in [call for call in self._calls if call.due_at <= self.now]:
            call.tries += 1
            taken = await _post(call)
            self.webhooks["taken" if taken else "refused"] += 1
            call.due_at += _WEBHOOK_DELAY
            if taken or call.tries == _WEBHOOK_TRIES:
                self._calls.remove(call)

    def _outcome(self, job: Job) -> tuple[Status, Any, str | None]:
        operation, prefix = job.input.get("operation", ""), job.input.get("prefix", "")
        if operation in self.faults.fail:
            return "FAILED", None, f"{operation} failed, as requested"
        if "images" not in job.input:
            return "COMPLETED", self._video(prefix, f"{operation or 'output'}.mp4"), None
        if any(str(image["id"]) in self.faults.mute_images for image in job.input["images"]):
            return "COMPLETED", None, None
        bad = [image["id"] for image in job.input["images"] if str(image["id"]) in self.faults.bad_images]
        if bad and not self.faults.partial:
            return "FAILED", None, f"Image {bad[0]} is corrupted"
        good = [str(image["id"]) for image in job.input["images"] if image["id"] not in bad]
        videos = [{"id": each, **self._video(prefix, filename(each))} for each in good]
        failed = [{"id": str(each), "code": self.faults.code, "message": f"Image {each} is corrupted"} for each in bad]
        return "COMPLETED", {"videos": videos, "failed": failed}, None

    def _video(self, prefix: str, name: str) -> dict[str, str]:
        return {"video_url": f"{self._files_url}/{prefix}{name}", "filename": name}

    def _describe(self, job: Job) -> dict[str, Any]:
        """Return the /status of a job."""
        started = job.started_at if job.started_at is not None else self.now
        told: dict[str, Any] = {"id": job.id, "status": job.status, "delayTime": _ms(started - job.submitted_at)}
        if job.started_at is not None:
            told["executionTime"] = _ms((job.ended_at or self.now) - job.started_at)
            told["workerId"] = "standin"
        if (progress := self.fleet.progress(job)) is not None:
            told["output"] = {"progress": progress}
        return told | {
            name: value for name, value in (("output", job.output), ("error", job.error)) if value is not None
        }

    def _note(self, what: str, job: Job) -> None:
        """Append one line to the external ledger, atomically."""
        if self._ledger is not None:
            line = {"what": what, "id": job.id, "key": job.key, "status": job.status, "at": time.time()}
            with self._ledger.open("ab", buffering=0) as file:
                file.write(json.dumps(line).encode() + b"\n")

    def _build_app(self) -> FastAPI:
        app = super()._build_app()
        app.middleware("http")(self._check_request)
        return app

    def _routes(self) -> Routes:
        yield "POST", "/v2/{endpoint}/run", self._run
        yield "GET", "/v2/{endpoint}/status/{job}", self._status
        yield "POST", "/v2/{endpoint}/cancel/{job}", self._cancel
        yield "POST", "/v2/{endpoint}/retry/{job}", self._retry
        yield "POST", "/v2/{endpoint}/purge-queue", self._purge
        yield "GET", "/v2/{endpoint}/requests", self._requests
        yield "GET", "/v2/{endpoint}/health", self._health
        yield "POST", "/standin/advance", self._advance

    async def _check_request(self, request: Request, answer: Callable[[Request], Any]) -> Response:
        if request.url.path.startswith("/v2/"):
            if (refusal := await self._refusal(request)) is not None:
                self.refused[refusal.status_code] += 1
                return refusal
            async with self._turn:
                self._settle()
        answered: Response = await answer(request)
        return answered

    async def _refusal(self, request: Request) -> Response | None:
        if not self._accepts(read_bearer(request)):
            return JSONResponse({"error": "Unauthorized"}, 401)
        return await self._refuse(
            JSONResponse({"error": "Too Many Requests"}, 429), JSONResponse({"error": "internal error"}, 500)
        )

    async def _run(self, endpoint: str, request: Request) -> Response:
        raw = await request.body()
        if len(raw) > LARGEST_BODY:
            return JSONResponse({"error": "request body is larger than 10 MB"}, 413)
        try:
            job = _parse_submission(endpoint, json.loads(raw), self.now)
        except (ValueError, TypeError, AttributeError) as error:
            return JSONResponse({"error": f"bad request: {error}"}, 400)
        self._take(job)
        if self._strikes("broken_after"):
            return JSONResponse({"error": "bad gateway"}, 502)
        return await self._deliver(JSONResponse({"id": job.id, "status": "IN_QUEUE"}))

    def _take(self, job: Job) -> None:
        if job.key is not None:
            same = [other for other in self.jobs if other.key == job.key]
            self.duplicates += any(other.is_live or other.status == "COMPLETED" for other in same)
        self.submits[job.key or job.id] += 1
        self.fleet.jobs[job.id] = job
        self._note("submitted", job)
        self._settle()

    async def _status(self, endpoint: str, job: str) -> Response:
        self.asked[job] += 1
        found = self._find(endpoint, job)
        return JSONResponse(self._describe(found)) if found else _unknown()

    async def _cancel(self, endpoint: str, job: str) -> Response:
        if (found := self._find(endpoint, job)) is None:
            return _unknown()
        was_live = found.is_live
        self.fleet.cancel(found)
        self._settle()
        if job in self._handles and self._twin is not None:
            await self._twin.cancel(self._handles[job])
        return JSONResponse({"id": job, "status": "CANCELLED" if was_live else found.status})

    async def _retry(self, endpoint: str, job: str) -> Response:
        found = self._find(endpoint, job)
        if found is None:
            return _unknown()
        if found.status not in ("FAILED", "TIMED_OUT"):
            return JSONResponse({"error": "only a failed or timed out job can be retried"}, 400)
        self.fleet.again(found)
        return JSONResponse({"id": job, "status": "IN_QUEUE"})

    async def _purge(self, endpoint: str) -> Response:
        queued = [job for job in self.jobs if job.endpoint == endpoint and job.status == "IN_QUEUE"]
        for job in queued:
            self.fleet.forget(job)
        return JSONResponse({"removed": len(queued), "status": "completed"})

    async def _requests(self, endpoint: str) -> Response:
        told = [self._describe(job) | {"input": job.input} for job in self.jobs if job.endpoint == endpoint]
        return JSONResponse({"requests": told})

    async def _health(self, endpoint: str) -> Response:
        count = Counter(job.status for job in self.jobs if job.endpoint == endpoint)
        running = len(self.fleet.running)
        jobs = {
            "completed": count["COMPLETED"],
            "failed": count["FAILED"],
            "inProgress": count["IN_PROGRESS"],
            "inQueue": count["IN_QUEUE"],
            "retried": 0,
        }
        return JSONResponse({"jobs": jobs, "workers": {"idle": self.fleet.workers - running, "running": running}})

    async def _advance(self, request: Request) -> Response:
        await self.advance(float((await request.json())["seconds"]))
        return JSONResponse(self.tally())

    def _find(self, endpoint: str, job: str) -> Job | None:
        found = self.fleet.jobs.get(job)
        return found if found is not None and found.endpoint == endpoint else None


def _parse_submission(endpoint: str, body: dict[str, Any], now: float) -> Job:
    if not isinstance(body.get("input"), dict):
        raise ValueError("`input` is missing or no object")
    policy = body.get("policy") or {}
    return Job(
        f"{uuid4()}-u1",
        endpoint,
        body["input"],
        now,
        webhook=body.get("webhook"),
        longest=_check_milliseconds(policy.get("executionTimeout", 600_000), _LEAST_EXECUTION_MS) / 1000,
        ttl=_check_milliseconds(policy.get("ttl", 86_400_000), _LEAST_TTL_MS) / 1000,
    )


def _check_milliseconds(ms: float, least: int) -> float:
    if not least <= ms <= _MOST_MS:
        raise ValueError(f"a policy's time of {ms} ms is not between {least} and {_MOST_MS}")
    return ms


async def _post(call: _Call) -> bool:
    try:
        async with HttpClient(Guard().with_origin_of(call.url)) as outgoing:
            return (await outgoing.request("POST", call.url, json=call.body)).status == 200
    except (NoResponse, UnsafeUrl):
        return False


def _by_images(seconds_per_image: float) -> Callable[[Job], float]:
    return lambda job: seconds_per_image * max(1, len(job.input.get("images", ())))


def _never_by_itself(_: Job) -> float:
    return float("inf")


def _unknown() -> Response:
    return JSONResponse({"error": "job not found"}, 404)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
