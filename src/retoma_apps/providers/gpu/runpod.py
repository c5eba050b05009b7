"""RunPod Serverless: a thin client.

RunPod has no idempotency keys. The key travels in the job's input, so `find` can look for it among the requests that
the endpoint lists, and a worker's handler can see that its outputs already exist (the request's prefix names them, so a
second render writes the same files). `find` cannot find a job that has left the list (it ended more than 30 minutes
ago, or its ttl has passed), or any job if the endpoint lists nothing or omits the inputs. RunPod documents that the
list exists, but not its contents. Such a submission is repeated, and may then be paid for twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self
from urllib.parse import quote

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import GiveUp, PollResult, Settings
from retoma.checks import Finding
from retoma.errors import ProviderRejected, RateLimited, SubmissionUnknown
from retoma.files import FileSettings
from retoma.outgoing import Guard, HttpClient, NoResponse, Response
from retoma_apps.providers import responses
from retoma_apps.providers.gpu.port import HostUnavailable, Operation
from retoma_apps.providers.retry_after import parse_retry_after

log = logging.getLogger(__name__)
QUEUE_ALLOWANCE = timedelta(hours=24)
_LARGEST_ANSWER = 20 * 1024**2
_LARGEST_REQUEST = 10 * 1024**2
_SECONDS = 30.0
_RATE_LIMIT_WINDOW = timedelta(seconds=10)  # RunPod counts requests per ten seconds
_MIN_EXECUTION_TIMEOUT, _MIN_TTL, _MAX_TTL = timedelta(seconds=5), timedelta(seconds=10), timedelta(days=7)
_ACCOUNT_ERRORS = {
    401: "RunPod rejected our key: set RUNPOD_API_KEY to a valid one",
    402: "the RunPod account has no credit left: add credit",
    403: "the RunPod key may not use this endpoint: grant it access, or set another key",
}
_FAILED_STATES = ("FAILED", "CANCELLED", "TIMED_OUT")


class RunPodSettings(BaseSettings):
    """One endpoint serves all operations, except those that have their own."""

    model_config = SettingsConfigDict(env_prefix="RUNPOD_", env_file=".env", extra="ignore")

    api_key: SecretStr = SecretStr("")
    base_url: str = "https://api.runpod.ai/v2"
    endpoint_id: str = ""
    endpoint_id_img2vid: str = ""
    endpoint_id_caption: str = ""
    endpoint_id_addaudio: str = ""
    timeout_seconds: float = Field(_SECONDS, gt=0, description="Timeout for one request to RunPod.")

    def endpoint(self, operation: Operation) -> str:
        """Raise GiveUp if none is set: other operations may have one, so the pool must not pause."""
        if found := getattr(self, f"endpoint_id_{operation}", "") or self.endpoint_id:
            return str(found)
        raise GiveUp(
            f"no RunPod endpoint is set for {operation}: set RUNPOD_ENDPOINT_ID, or the same with _{operation.upper()}",
            "NOT_CONFIGURED",
        )

    @property
    def endpoints(self) -> list[str]:
        ids = (self.endpoint_id, self.endpoint_id_img2vid, self.endpoint_id_caption, self.endpoint_id_addaudio)
        return sorted({each for each in ids if each})


class RunPodHost:
    """An external id is `endpoint/job`. Create it where it is used: its connections belong to one event loop."""

    name = "runpod"
    is_offline = False
    poll_interval = timedelta(seconds=8)
    variables: tuple[str, ...] = ("RUNPOD_API_KEY",)

    def __init__(self, settings: RunPodSettings | None = None, outgoing: HttpClient | None = None) -> None:
        self._settings = settings or RunPodSettings()
        self._outgoing = outgoing or HttpClient(Guard().with_origin_of(self._settings.base_url))

    @classmethod
    def from_environment(cls, settings: Settings, files: FileSettings) -> Self | None:
        runpod = RunPodSettings()
        return cls(runpod) if runpod.api_key.get_secret_value() else None

    async def submit(
        self,
        operation: Operation,
        input: dict[str, Any],  # noqa: A002, RunPod's own name
        *,
        key: str,
        callback_url: str | None = None,
        timeout: timedelta,
    ) -> str:
        endpoint = self._settings.endpoint(operation)
        body: dict[str, Any] = {"input": {**input, "operation": operation, "key": key}, "policy": _policy(timeout)}
        if callback_url is not None:
            body["webhook"] = callback_url
        _check_size(body)
        answer = await self._submit(endpoint, body)
        job = _get_field(answer, "id")
        if not isinstance(job, str) or not job:
            raise SubmissionUnknown(f"RunPod answered {answer.status} to a submission without a job id")
        return f"{endpoint}/{job}"

    async def status(self, external_id: str) -> PollResult:
        answer = await self._request_or_unavailable("GET", f"{_path(external_id, 'status')}")
        if answer.status == 404:
            return PollResult(
                "lost", code="LOST", message="RunPod does not know this job: it was dropped or is too old"
            )
        _check(answer)
        return _to_poll_result(_parse_body(answer))

    async def cancel(self, external_id: str) -> None:
        answer = await self._request_or_unavailable("POST", _path(external_id, "cancel"))
        if answer.status != 404:  # nothing is left to cancel
            _check(answer)

    async def find(self, key: str) -> str | None:
        for endpoint in self._settings.endpoints:
            answer = await self._request_or_unavailable("GET", f"{endpoint}/requests")
            if answer.status == 404:
                continue  # this endpoint lists nothing
            _check(answer)
            for entry in _entries(answer):
                if _matches_key(entry, key):
                    return f"{endpoint}/{entry['id']}"
        return None

    def check(self) -> Finding:
        if not self._settings.endpoints:
            return Finding("warning", "GPUs", "RunPod API key is set, but no endpoint", "set RUNPOD_ENDPOINT_ID")
        return Finding("ok", "GPUs", "RunPod API key is set")

    async def close(self) -> None:
        await self._outgoing.close()

    async def _submit(self, endpoint: str, body: dict[str, Any]) -> Response:
        try:
            answer = await self._request("POST", f"{endpoint}/run", body)
        except NoResponse as error:
            if error.maybe_sent:
                raise SubmissionUnknown(f"RunPod may have taken this job, but its answer was lost: {error}") from error
            raise HostUnavailable(f"RunPod cannot be reached: {error}") from error
        if answer.status >= 500:
            raise SubmissionUnknown(f"RunPod may have taken this job, but answered {answer.status}")
        _check(answer)
        return answer

    async def _request_or_unavailable(self, method: str, path: str) -> Response:
        try:
            return await self._request(method, path)
        except NoResponse as error:
            raise HostUnavailable(f"RunPod did not answer: {error}") from error

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Response:
        """Send a request. Our key is removed from the answer, so nothing can show it later."""
        key = self._settings.api_key.get_secret_value()
        answer = await self._outgoing.request(
            method,
            f"{self._settings.base_url.rstrip('/')}/{path}",
            headers={"Authorization": f"Bearer {key}"},
            json=body,
            timeout=self._settings.timeout_seconds,
            limit=_LARGEST_ANSWER,
        )
        return replace(answer, body=answer.body.replace(key.encode(), b"...")) if key else answer


def _check(answer: Response) -> None:
    """Raise the error that each unsuccessful answer requires."""
    if answer.is_success:
        return
    if answer.status == 429:
        raise RateLimited(parse_retry_after(answer) or _RATE_LIMIT_WINDOW, "RunPod is rate limiting us")
    if answer.status >= 500:
        raise HostUnavailable(f"RunPod answered {answer.status}")
    if answer.status in _ACCOUNT_ERRORS:
        raise ProviderRejected(f"{_ACCOUNT_ERRORS[answer.status]}{_format_error(answer)}")
    if answer.status == 404:
        raise GiveUp(f"RunPod has no such endpoint: check RUNPOD_ENDPOINT_ID{_format_error(answer)}", "NOT_CONFIGURED")
    raise GiveUp(f"RunPod rejected this request with {answer.status}{_format_error(answer)}", "REFUSED")


def _format_error(answer: Response) -> str:
    return responses.format_provider_message(_get_field(answer, "error"))


def _policy(timeout: timedelta) -> dict[str, int]:
    """Return RunPod's policy. Its ttl counts from the submission, so it has to cover the queue too."""
    running = min(max(timeout, _MIN_EXECUTION_TIMEOUT), _MAX_TTL)
    life = min(max(running + QUEUE_ALLOWANCE, _MIN_TTL), _MAX_TTL)
    return {"executionTimeout": _ms(running), "ttl": _ms(life)}


def _to_poll_result(body: dict[str, Any]) -> PollResult:
    """Convert every state that RunPod has, and any that it may add."""
    status = body.get("status")
    match status:
        case "IN_QUEUE":
            return PollResult("queued")
        case "IN_PROGRESS" | "RUNNING":
            return PollResult("running", progress=_progress(body.get("output")))
        case "COMPLETED":
            return _to_finished_result(body.get("output"), body.get("executionTime"))
        case "FAILED":
            return PollResult("failed", code="PROCESSING_ERROR", message=_error_message(body))
        case "TIMED_OUT":
            return PollResult(
                "failed", code="TIMEOUT", message=_error_message(body) if body.get("error") else "RunPod timed it out"
            )
        case "CANCELLED":
            return PollResult("cancelled", code="CANCELLED", message="cancelled at RunPod")
        case _:
            said = f"RunPod reported an unknown state: {str(status)[:60]!r}"
            log.warning("%s; treating the job as running", said, extra={"event": "runpod_state_unknown"})
            return PollResult("running", message=said)


def _to_finished_result(output: Any, execution_time: Any) -> PollResult:
    """Return a failure if there is no video, with the first reported fault if any; failed work is submitted again."""
    body = output if isinstance(output, dict) else {}
    if any(map(_has_url, [body, *_get_list(body, "videos")])):
        return PollResult("succeeded", result=body | {"gpu_seconds": _seconds(execution_time)}, progress=1.0)
    fault = next((each for each in _get_list(body, "failed") if isinstance(each, dict)), {})
    message = _text(fault, "message") or "RunPod reports success, but no video"
    return PollResult("failed", code=_text(fault, "code") or "NO_VIDEO", message=message)


def _get_list(body: dict[str, Any], name: str) -> list[Any]:
    entries = body.get(name)
    return entries if isinstance(entries, list) else []


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value[:500] if isinstance(value, str) else None


def _seconds(execution_time: Any) -> float | None:
    """Convert RunPod's milliseconds, or return None if the value is invalid."""
    is_time = (
        isinstance(execution_time, int | float)
        and not isinstance(execution_time, bool)
        and 0 <= execution_time <= _ms(_MAX_TTL)
    )
    return execution_time / 1000 if is_time else None


def _has_url(entry: Any) -> bool:
    url = entry.get("video_url") if isinstance(entry, dict) else None
    return isinstance(url, str) and url.startswith(("http://", "https://"))


def _progress(output: Any) -> float | None:
    """Return the progress that our handlers report as `{"progress": 0.4}`."""
    part = output.get("progress") if isinstance(output, dict) else None
    if not isinstance(part, int | float) or isinstance(part, bool):
        return None
    return min(1.0, max(0.0, part))  # in this order NaN is 0


def _error_message(body: dict[str, Any]) -> str:
    """Return the message. RunPod's SDK packs an exception into JSON text; its traceback is not for our users."""
    error = body.get("error")
    try:
        packed = json.loads(error) if isinstance(error, str) else error
    except (ValueError, RecursionError):
        packed = None
    if isinstance(packed, dict) and "error_message" in packed:
        error = packed["error_message"]
    return str(error)[:500] if error else "RunPod gave no reason"


def _entries(answer: Response) -> Iterator[dict[str, Any]]:
    listed = responses.parse_json(answer)
    if listed is None:
        raise HostUnavailable("RunPod's list of requests is not JSON, or is too long")
    entries = listed.get("requests", ()) if isinstance(listed, dict) else listed
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry


def _matches_key(entry: dict[str, Any], key: str) -> bool:
    """Return whether this is work with this key that is running or has succeeded; failed work is submitted again."""
    job_input = entry.get("input")
    return isinstance(job_input, dict) and job_input.get("key") == key and entry.get("status") not in _FAILED_STATES


def _parse_body(answer: Response) -> dict[str, Any]:
    body = responses.parse_json_object(answer)
    if body is None:
        raise HostUnavailable("RunPod's answer is not a JSON object, or is too long")
    return body


def _get_field(answer: Response, name: str) -> Any:
    return (responses.parse_json_object(answer) or {}).get(name)


def _path(external_id: str, verb: str) -> str:
    endpoint, _, job = external_id.partition("/")
    return f"{quote(endpoint, safe='')}/{verb}/{quote(job, safe='')}"


def _check_size(body: dict[str, Any]) -> None:
    if len(json.dumps(body)) > _LARGEST_REQUEST:
        raise GiveUp("this request is larger than RunPod's limit of 10 MB: split it", "TOO_LARGE")


def _ms(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)
