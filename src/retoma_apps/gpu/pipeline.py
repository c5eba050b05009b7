"""The three operations. Each part of a job is submitted to a GPU host and uses one of its workers until it ends.

Images are rendered in parts. A part that fails is retried alone, up to three times; then its images are rendered one
by one, so a bad image loses only its own video. A part that times out ends the job.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from retoma import Context, GiveUp, Items, Pipeline, Pool, Retry, hours
from retoma.errors import ExternalWorkFailed
from retoma.outgoing import UnsafeUrl
from retoma_apps.gpu.metrics import POOL
from retoma_apps.gpu.models import AddAudioRun, CaptionRun, Img2VidRun, Submission
from retoma_apps.gpu.settings import Rules
from retoma_apps.gpu.states import job_id
from retoma_apps.gpu.steps.estimates import estimate_clips, estimate_lone_clip, estimate_operation
from retoma_apps.gpu.steps.image_chunks import (
    Clips,
    Fault,
    ImageChunk,
    Output,
    Video,
    assign_zooms,
    order_by_image,
    split_into_chunks,
)
from retoma_apps.providers.captions import Segment, Style
from retoma_apps.providers.gpu import GpuHost, Image, Operation, Zoom
from retoma_apps.providers.gpu.render_requests import VideoFormat

log = logging.getLogger(__name__)
GPU = Pool(POOL, capacity=3)
RETRIES = 3
RETRY = Retry(RETRIES, delays=[5, 15, 45])
RETRY_ONCE = Retry(1, delays=[5])
TIMEOUT = "TIMEOUT"
_TIMEOUTS = (TIMEOUT, "QUEUE_TIMEOUT")
_UNSAFE = "UNSAFE_URL"
_FINAL = ("CORRUPT_IMAGE", "CORRUPT_VIDEO", "CORRUPT_AUDIO", _UNSAFE, "INVALID_INPUT", "NOT_INSTALLED")


RETENTION = hours(24)  # after the end of a job and of its callback

img2vid = Pipeline("img2vid", inputs=Img2VidRun, title=Submission.make_title, retention=RETENTION)
caption = Pipeline("caption", inputs=CaptionRun, title=Submission.make_title, retention=RETENTION)
addaudio = Pipeline("addaudio", inputs=AddAudioRun, title=Submission.make_title, retention=RETENTION)


@img2vid.step
def parts(images: list[Image], *, rules: Rules) -> list[ImageChunk]:
    return split_into_chunks(images, rules.settings.gpu_part_seconds)


@img2vid.each(parts, pool=GPU, retry=RETRY, on_failure="stop", estimated_cost=estimate_clips)
async def clips(
    part: ImageChunk,
    images: list[Image],
    zoom_types: list[Zoom],
    picture: VideoFormat,
    *,
    host: GpuHost,
    rules: Rules,
    ctx: Context,
) -> Clips:
    """Return faults instead of failing after the last retry: those images are then rendered one by one."""
    wanted = part.select(assign_zooms(images, zoom_types))
    try:
        return _parse_clips(wanted, await _render("img2vid", _img2vid_request(wanted, picture, ctx), host, rules, ctx))
    except (ExternalWorkFailed, GiveUp) as error:
        if error.code not in _FINAL and (ctx.attempt <= RETRIES or isinstance(error, GiveUp)):
            raise
        log.error(
            "%s: part %s failed %d times: %s",
            job_id(ctx.run),
            ctx.item,
            ctx.attempt,
            error,
            extra={"event": "gpu_part_failed"},
        )
        alone = len(wanted) == 1
        return Clips(failed=[Fault(id=image.id, code=error.code, message=str(error), final=alone) for image in wanted])


@img2vid.step
def leftovers(clips: Items[Clips]) -> list[Fault]:
    return [fault for part in clips for fault in part.failed]


@img2vid.each(leftovers, key="id", pool=GPU, retry=RETRY_ONCE, estimated_cost=estimate_lone_clip)
async def lone_clip(
    leftover: Fault,
    images: list[Image],
    zoom_types: list[Zoom],
    picture: VideoFormat,
    *,
    host: GpuHost,
    rules: Rules,
    ctx: Context,
) -> Video:
    if leftover.final and ctx.revision == 1:  # before a rerun, the image may have been fixed
        raise GiveUp(leftover.message, leftover.code)
    wanted = [image for image in assign_zooms(images, zoom_types) if image.id == leftover.id]
    found = _parse_clips(
        wanted, await _render_or_give_up("img2vid", _img2vid_request(wanted, picture, ctx), host, rules, ctx)
    )
    if not found.videos:  # the work has succeeded, so a retry would return the same
        raise GiveUp(found.failed[0].message, found.failed[0].code)
    return found.videos[0]


@img2vid.step
def videos(images: list[Image], clips: Items[Clips], lone_clip: Items[Video]) -> list[Video]:
    return order_by_image(images, [*(video for part in clips for video in part.videos), *lone_clip])


@caption.step(pool=GPU, retry=RETRY, estimated_cost=estimate_operation("caption"))
async def captioned(
    video_url: str,
    subtitles: list[Segment] | str | None,
    text: str | None,
    style: Style,
    *,
    host: GpuHost,
    rules: Rules,
    ctx: Context,
) -> Output:
    shown = [segment.model_dump() for segment in subtitles] if isinstance(subtitles, list) else subtitles
    request = {"video_url": video_url, "subtitles": shown, "text": text, "style": style.model_dump()}
    return _parse_output(await _render_or_give_up("caption", {"prefix": _prefix(ctx), **request}, host, rules, ctx))


@addaudio.step(pool=GPU, retry=RETRY, estimated_cost=estimate_operation("addaudio"))
async def with_audio(
    video_url: str, audio_url: str, volume: float, *, host: GpuHost, rules: Rules, ctx: Context
) -> Output:
    request = {"video_url": video_url, "audio_url": audio_url, "volume": volume}
    return _parse_output(await _render_or_give_up("addaudio", {"prefix": _prefix(ctx), **request}, host, rules, ctx))


async def _render_or_give_up(
    operation: Operation, request: dict[str, Any], host: GpuHost, rules: Rules, ctx: Context
) -> Any:
    """Render a request that cannot be divided: an error that a retry would repeat ends it."""
    try:
        return await _render(operation, request, host, rules, ctx)
    except ExternalWorkFailed as error:
        if error.code in _FINAL:
            raise GiveUp(str(error), error.code) from error
        raise


async def _render(operation: Operation, request: dict[str, Any], host: GpuHost, rules: Rules, ctx: Context) -> Any:
    """Return the host's own result. The job is parked here until the host has one."""
    limit = rules.limit(operation)

    async def submit() -> str:
        _log_retry(ctx)
        _check_urls(request, rules)
        url = ctx.callback_url
        external_id = await host.submit(operation, request, key=ctx.effect_key, callback_url=url, timeout=limit)
        await ctx.limit_run(rules.total_limit(operation))  # for the whole job, from the submission of its first part
        return external_id

    await ctx.once("began", lambda: True)  # survives retries, so the job's start does not move
    try:
        result = await ctx.external(
            submit,
            find=host.find,
            poll=host.status,
            cancel=host.cancel,
            poll_interval=rules.poll_interval or host.poll_interval,
            queue_timeout=limit,
            run_timeout=limit,
            total_timeout=rules.total_limit(operation),
        )
    except ExternalWorkFailed as error:
        if error.code not in _TIMEOUTS:
            raise
        elapsed = round(limit.total_seconds() * 1000)
        log.error("%s timed out after %dms", job_id(ctx.run), elapsed, extra={"event": "gpu_render_timed_out"})
        raise GiveUp(f"{operation} timed out after {elapsed}ms: {error}", TIMEOUT) from error
    if isinstance(result, dict) and (paid := result.get("gpu_seconds")):
        ctx.charge(host.name, operation, units=paid)
    return result


def _check_urls(request: dict[str, Any], rules: Rules) -> None:
    """Check here too: the routes are not the only way to start a job."""
    try:
        for field, url in _list_urls(request).items():
            rules.guard.check(url, field)
    except UnsafeUrl as error:
        raise GiveUp(str(error), _UNSAFE) from error


def _list_urls(request: dict[str, Any]) -> dict[str, str]:
    """Return URLs by field; those of images by id, as a part has only some of the images."""
    urls = {name: request.get(name) for name in ("video_url", "audio_url", "subtitles")}
    if not str(urls["subtitles"]).startswith(("https://", "http://")):
        del urls["subtitles"]
    images = {f"image_url of image {each['id']}": each["image_url"] for each in request.get("images", ())}
    return {name: url for name, url in (urls | images).items() if url is not None}


def _img2vid_request(images: Any, picture: VideoFormat, ctx: Context) -> dict[str, Any]:
    return {
        "prefix": _prefix(ctx),
        "images": [image.model_dump() for image in images],
        "picture": picture.model_dump(),
    }


def _prefix(ctx: Context) -> str:
    return f"gpu/{ctx.run}/{ctx.revision}/"


def _parse_clips(wanted: Sequence[Image], result: Any) -> Clips:
    """Return a video or a fault for each requested image, and ignore everything else in the result."""
    fields = result if isinstance(result, dict) else {}
    videos = {video.id: video for video in Video.parse_all(fields.get("videos"))}
    faults = {
        fault.id: fault.model_copy(update={"final": fault.code in _FINAL})
        for fault in Fault.parse_all(fields.get("failed"))
    }
    return Clips(
        videos=[videos[image.id] for image in wanted if image.id in videos],
        failed=[faults.get(image.id, _no_video(image)) for image in wanted if image.id not in videos],
    )


def _no_video(image: Image) -> Fault:
    return Fault(
        id=image.id, code="NO_VIDEO", message=f"the GPU host returned no video for image {image.id}", final=False
    )


def _parse_output(result: Any) -> Output:
    if (found := Output.parse(result)) is None:
        raise GiveUp("the GPU host reported success, but no video", "NO_VIDEO")
    return found


def _log_retry(ctx: Context) -> None:
    if ctx.attempt > 1:
        part = f"part {ctx.item}" if ctx.item else "the job"
        log.warning(
            "%s: retrying %s, attempt %d", job_id(ctx.run), part, ctx.attempt, extra={"event": "gpu_render_retried"}
        )
