"""The local renderer's output, checked frame by frame and sample by sample."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from retoma.files import FileSettings, create_file_store
from retoma.outgoing import LOOPBACK, Guard, HttpClient
from retoma_apps.providers import ffmpeg
from retoma_apps.providers.gpu import GpuHost, Operation, Zoom
from retoma_apps.providers.gpu.ffmpeg_renderer import FfmpegRenderer, RenderFailed
from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.render_requests import Image, parse_render_request, resolve_zooms
from retoma_apps.providers.gpu.runpod import RunPodHost
from tests.apps.providers.gpu.file_server import FileServer
from tests.apps.providers.gpu.media import (
    VideoContent,
    odd_video,
    picture,
    plain_picture,
    read_video,
    tone,
    video,
    white,
)

SMALL = {"width": 64, "height": 36, "fps": 25}
PREFIX = "gpu/job/1/"


class InProcessRenderer:
    """Renders requests in this process and keeps their progress."""

    def __init__(self, folder: Path, file_server: FileServer, outgoing: HttpClient) -> None:
        self.file_server = file_server
        self.home = folder
        self.progress: list[float] = []
        room = folder / "work"
        room.mkdir()
        settings = FileSettings(_env_file=None, home=folder, public_url="http://here")
        self._work = FfmpegRenderer(room, outgoing, create_file_store(settings), self.progress.append)

    async def render(self, operation: Operation, **values: Any) -> dict[str, Any]:
        return await self._work.render(parse_render_request(operation, {"prefix": PREFIX, **values}))

    async def clips(self, *images: bytes | str, **values: Any) -> dict[str, Any]:
        """Render clips of these images, or of those at these URLs; their ids are 1, 2 and so on."""
        requested = [
            {"id": str(number), "image_url": self._address(number, image), "duracao": 0.4}
            for number, image in enumerate(images, 1)
        ]
        return await self.render("img2vid", images=requested, **{"picture": SMALL} | values)

    def read(self, name: str) -> VideoContent:
        return read_video(self.home / "files" / PREFIX / name)

    def _address(self, number: int, image: bytes | str) -> str:
        return image if isinstance(image, str) else self.file_server.put(f"image-{number}", image)


@pytest.fixture
async def renderer(tmp_path: Path, file_server: FileServer) -> AsyncIterator[InProcessRenderer]:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        yield InProcessRenderer(tmp_path, file_server, outgoing)


def test_every_class_implements_the_host_protocol() -> None:
    hosts: list[type[GpuHost]] = [LocalHost, RunPodHost]
    assert all(hosts)


async def test_a_clip_has_the_requested_size_and_length(renderer: InProcessRenderer) -> None:
    result = await renderer.clips(plain_picture())
    assert result == {
        "videos": [{"id": "1", "video_url": f"http://here/files/{PREFIX}video_1.mp4", "filename": "video_1.mp4"}],
        "failed": [],
    }
    clip = renderer.read("video_1.mp4")
    assert (clip.width, clip.height, len(clip.frames)) == (64, 36, 10)
    assert clip.seconds == pytest.approx(0.4, abs=0.01)
    assert renderer.progress[-1] == 1.0


MOVES: dict[Zoom, Callable[[float, float], float]] = {
    # Each picture is brightest where the movement ends.
    "zoomin": lambda x, y: 1 - 2 * max(abs(x - 0.5), abs(y - 0.5)),
    "zoomout": lambda x, y: 2 * max(abs(x - 0.5), abs(y - 0.5)),
    "zoompanright": lambda x, y: x,
    "zoompanleft": lambda x, y: 1 - x,
    "zoompanup": lambda x, y: 1 - y,
    "zoompandown": lambda x, y: y,
}


@pytest.mark.parametrize("zoom", get_args(Zoom))
async def test_the_picture_moves_continuously_in_the_requested_direction(
    renderer: InProcessRenderer, zoom: Zoom
) -> None:
    await renderer.clips(picture(MOVES[zoom], size=(256, 144)), zoom_types=[zoom])
    brightness = renderer.read("video_1.mp4").brightness
    assert brightness[-1] > brightness[0] + 3
    assert all(later >= earlier - 0.5 for earlier, later in pairwise(brightness))


def test_zoom_types_rotate_unless_an_image_has_its_own() -> None:
    images = [Image(id=str(n), image_url="https://example.com/a.png", duracao=1) for n in range(4)]
    images[1] = images[1].model_copy(update={"zoom": "zoompanup"})
    assert resolve_zooms(images, ["zoomin", "zoomout"]) == ["zoomin", "zoompanup", "zoomin", "zoomout"]
    assert resolve_zooms(images, []) == ["zoomin", "zoompanup", "zoompanright", "zoomin"]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
async def test_all_common_image_formats_are_accepted(renderer: InProcessRenderer, kind: str) -> None:
    await renderer.clips(picture(lambda x, y: x, kind=kind))
    assert len(renderer.read("video_1.mp4").frames) == 10


@pytest.mark.parametrize("size", [(36, 200), (300, 20), (1, 1)])
async def test_an_image_with_another_aspect_ratio_fills_the_frame(
    renderer: InProcessRenderer, size: tuple[int, int]
) -> None:
    await renderer.clips(white(size))
    clip = renderer.read("video_1.mp4")
    assert (clip.width, clip.height) == (64, 36)
    assert min(clip.frames[0]) > 200


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
async def test_a_corrupt_image_fails_alone_by_its_id(renderer: InProcessRenderer, kind: str) -> None:
    good, whole = plain_picture(), picture(lambda x, y: (x * 7919 + y * 104729) % 1, size=(320, 180), kind=kind)
    result = await renderer.clips(good, whole[: len(whole) // 2], good)
    assert [video["id"] for video in result["videos"]] == ["1", "3"]
    [failed] = result["failed"]
    assert (failed["id"], failed["code"], failed["message"]) == ("2", "CORRUPT_IMAGE", "Image 2 is corrupted")


async def test_a_request_with_only_bad_images_fails(renderer: InProcessRenderer) -> None:
    with pytest.raises(RenderFailed, match="Image 1 is corrupted"):
        await renderer.clips(b"no picture at all", b"")


async def test_an_image_that_cannot_be_fetched_fails_alone_with_the_reason(renderer: InProcessRenderer) -> None:
    result = await renderer.clips(
        plain_picture(), f"{renderer.file_server.origin}/missing", f"{renderer.file_server.origin}/moved"
    )
    assert [(each["id"], each["code"]) for each in result["failed"]] == [
        ("2", "DOWNLOAD_FAILED"),
        ("3", "DOWNLOAD_FAILED"),
    ]
    assert "404" in result["failed"][0]["message"]
    assert "redirects are not followed" in result["failed"][1]["message"]


async def test_a_caption_is_burnt_in_for_the_duration_of_its_segment(renderer: InProcessRenderer) -> None:
    srt = "1\n00:00:00,200 --> 00:00:00,400\nOlá\n"
    result = await renderer.render(
        "caption", video_url=renderer.file_server.put("v", video()), subtitles=srt, style={"font_size": 400}
    )
    assert result["filename"] == "captioned.mp4"
    brightness = renderer.read("captioned.mp4").brightness
    assert len(brightness) == 10
    assert max(brightness[:4]) < 0.5
    assert min(brightness[6:]) > 2


@pytest.mark.parametrize("position", ["top", "middle", "bottom"])
async def test_a_text_is_positioned_by_its_style(renderer: InProcessRenderer, position: str) -> None:
    style = {"font_size": 250, "position": position}
    await renderer.render("caption", video_url=renderer.file_server.put("v", video()), text="Ação", style=style)
    frame = renderer.read("captioned.mp4").frames[5]
    thirds = [sum(frame[at : at + 12 * 64]) for at in range(0, 36 * 64, 12 * 64)]
    assert thirds.index(max(thirds)) == ["top", "middle", "bottom"].index(position)


async def test_accents_are_drawn_with_our_own_font(
    renderer: InProcessRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ffmpeg.ENVIRONMENT, "FONTCONFIG_FILE", "/dev/null")  # a machine without any fonts
    pictures = [await _has_text(renderer, text) for text in ("c", "ç", "ã", "\U000f0000", "\U000f0001")]
    assert len(set(pictures[:4])) == 4
    assert pictures[3] == pictures[4], "letters that no font has look all the same"


async def test_text_that_looks_like_a_format_command_is_shown_literally(renderer: InProcessRenderer) -> None:
    shown = await _has_text(renderer, "{\\alpha&HFF&}x")
    assert len({shown, await _has_text(renderer, "x"), await _has_text(renderer, "\u2060")}) == 3


async def test_segments_may_be_inline_or_fetched(renderer: InProcessRenderer) -> None:
    source = renderer.file_server.put("v", video(sound=440))
    style = {"font_size": 400}
    await renderer.render("caption", video_url=source, subtitles=[{"start": 0, "end": 9, "text": "Olá"}], style=style)
    values = renderer.read("captioned.mp4")
    address = renderer.file_server.put("s.srt", "\ufeff1\r\n00:00:00,000 --> 00:00:09,000\r\n<i>Olá</i>\r\n".encode())
    await renderer.render("caption", video_url=source, subtitles=address, style=style)
    assert renderer.read("captioned.mp4").frames == values.frames
    assert values.loudness(440) > 0.05, "the video keeps its sound"


@pytest.mark.parametrize("seconds", [0.2, 2.0])
async def test_added_audio_keeps_the_length_of_a_silent_video(renderer: InProcessRenderer, seconds: float) -> None:
    await renderer.render(
        "addaudio",
        video_url=renderer.file_server.put("v", video()),
        audio_url=renderer.file_server.put("a", tone(880, seconds)),
    )
    mixed = renderer.read("with_audio.mp4")
    assert len(mixed.frames) == 10
    assert mixed.seconds == pytest.approx(0.4, abs=0.06)
    assert mixed.loudness(880) > 0.03


async def test_added_audio_is_mixed_with_the_existing_sound_by_its_volume(renderer: InProcessRenderer) -> None:
    source, added = renderer.file_server.put("v", video(sound=440)), renderer.file_server.put("a", tone(880, 2.0))
    await renderer.render("addaudio", video_url=source, audio_url=added, volume=1)
    loud = renderer.read("with_audio.mp4")
    await renderer.render("addaudio", video_url=source, audio_url=added, volume=0.25)
    soft = renderer.read("with_audio.mp4")
    assert soft.loudness(440) == pytest.approx(loud.loudness(440), rel=0.1)
    assert soft.loudness(880) == pytest.approx(loud.loudness(880) / 4, rel=0.1)


async def test_a_video_in_another_format_is_accepted(renderer: InProcessRenderer) -> None:
    source = renderer.file_server.put("v", video(kind="mkv"))
    await renderer.render("addaudio", video_url=source, audio_url=renderer.file_server.put("a", tone(880, 1.0)))
    assert len(renderer.read("with_audio.mp4").frames) == 10


async def test_a_video_with_odd_dimensions_is_accepted(renderer: InProcessRenderer) -> None:
    source, sound = renderer.file_server.put("v", odd_video()), renderer.file_server.put("a", tone(880, 0.4))
    await renderer.render("caption", video_url=source, text="Olá")
    await renderer.render("addaudio", video_url=source, audio_url=sound)
    for name in ("captioned.mp4", "with_audio.mp4"):
        assert (renderer.read(name).width, renderer.read(name).height) == (64, 48)


async def test_audio_without_sound_and_video_without_frames_are_rejected(renderer: InProcessRenderer) -> None:
    silent, sound = renderer.file_server.put("v", video()), renderer.file_server.put("a", tone(880, 0.4))
    with pytest.raises(RenderFailed, match="no audio stream"):
        await renderer.render("addaudio", video_url=silent, audio_url=silent)
    with pytest.raises(RenderFailed, match="no video stream"):
        await renderer.render("caption", video_url=sound, text="x")
    with pytest.raises(RenderFailed, match="The video is corrupted"):
        await renderer.render("caption", video_url=renderer.file_server.put("x", b"not a video at all"), text="x")


async def _has_text(renderer: InProcessRenderer, text: str) -> bytes:
    style = {"font_size": 400, "position": "middle"}
    await renderer.render("caption", video_url=renderer.file_server.put("v", video()), text=text, style=style)
    return renderer.read("captioned.mp4").frames[5]
