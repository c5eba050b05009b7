"""Untrusted input: none of it reads this machine's files, reaches its network, or becomes part of a path."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from retoma import GiveUp
from retoma.outgoing import HttpClient
from retoma_apps.providers.gpu import Operation, filename
from retoma_apps.providers.gpu import ffmpeg_renderer as module
from retoma_apps.providers.gpu.ffmpeg_renderer import RenderFailed
from retoma_apps.providers.gpu.render_requests import parse_render_request
from tests.apps.providers.gpu.media import plain_picture
from tests.apps.providers.gpu.test_ffmpeg_renderer import InProcessRenderer, renderer  # noqa: F401, a fixture

PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n"
CONCAT = b"ffconcat version 1.0\nfile /etc/hostname\n"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/hostname"/></svg>'


@pytest.mark.parametrize("thing", [PLAYLIST, CONCAT, SVG, b"", b"GIF8", b"\xff\xd8\xff", b"BM", plain_picture()[:40]])
async def test_an_image_with_other_content_is_corrupt(renderer: InProcessRenderer, thing: bytes) -> None:  # noqa: F811
    with pytest.raises(RenderFailed, match="Image 1 is corrupted"):
        await renderer.clips(thing)


@pytest.mark.parametrize("thing", [PLAYLIST, CONCAT, SVG, b"", b"\x00\x00\x00\x18ftypmp42"])
async def test_a_video_with_other_content_is_corrupt(renderer: InProcessRenderer, thing: bytes) -> None:  # noqa: F811
    with pytest.raises(RenderFailed) as raised:
        await renderer.render("caption", video_url=renderer.file_server.put("v", thing), text="x")
    assert raised.value.code == "CORRUPT_VIDEO"


async def test_an_image_with_far_too_many_pixels_is_not_decoded(renderer: InProcessRenderer) -> None:  # noqa: F811
    with pytest.raises(RenderFailed, match="Image 1 is corrupted"):
        await renderer.clips(_bomb(11_000, 11_000))


async def test_an_image_with_too_many_bytes_is_rejected(
    renderer: InProcessRenderer,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGEST_IMAGE", 100)
    with pytest.raises(RenderFailed, match="longer than 100 bytes"):
        await renderer.clips(plain_picture())


async def test_an_address_in_our_network_is_not_called(renderer: InProcessRenderer) -> None:  # noqa: F811
    async with HttpClient() as guarded:
        renderer._work._outgoing = guarded
        with pytest.raises(RenderFailed, match="RETOMA_ALLOW_HOSTS") as raised:
            await renderer.clips(plain_picture())
    assert raised.value.code == "UNSAFE_URL"
    assert renderer.file_server.asked == []


def image(**changed: Any) -> dict[str, Any]:
    return {"images": [{"id": "1", "image_url": "https://example.com/a.png", "duracao": 1} | changed]}


@pytest.mark.parametrize(
    ("operation", "values", "named"),
    [
        ("img2vid", image(image_url="file:///etc/passwd"), "images.0.image_url"),
        ("img2vid", image(image_url="/etc/passwd"), "images.0.image_url"),
        ("img2vid", image(duracao=0), "images.0.duracao"),
        ("img2vid", image(duracao=float("nan")), "images.0.duracao"),
        ("img2vid", image(duracao=1e9), "images.0.duracao"),
        ("img2vid", image(id=""), "images.0.id"),
        ("img2vid", image(zoom="spin"), "images.0.zoom"),
        ("img2vid", {"images": []}, "images"),
        ("img2vid", {"images": image()["images"] * 2}, "two images have the id '1'"),
        ("img2vid", image() | {"prefix": "../../etc/"}, "prefix"),
        ("img2vid", image() | {"prefix": "/etc/"}, "prefix"),
        ("img2vid", image() | {"prefix": "gpu/a\n/"}, "prefix"),
        ("img2vid", image() | {"picture": {"width": 100_000}}, "picture.width"),
        ("caption", {"video_url": "https://example.com/v.mp4"}, "either `subtitles` or `text`"),
        ("caption", {"video_url": "https://example.com/v.mp4", "subtitles": "no times"}, "block 1"),
        (
            "caption",
            {"video_url": "https://example.com/v.mp4", "text": "x", "style": {"color": "red;x"}},
            "style.color",
        ),
        ("caption", {"video_url": "https://example.com/v.mp4", "text": "x", "style": {"font": "x"}}, "style.font"),
        ("addaudio", {"video_url": "https://e.com/v", "audio_url": "https://e.com/a", "volume": 11}, "volume"),
        ("addaudio", {"video_url": "https://e.com/v", "audio_url": "data:audio/wav;base64,"}, "audio_url"),
        ("delete", {}, "no operation"),
    ],
)
def test_an_invalid_request_names_the_faulty_field(operation: Operation, values: dict[str, Any], named: str) -> None:
    with pytest.raises(GiveUp) as raised:
        parse_render_request(operation, {"prefix": "gpu/job/1/"} | values)
    assert named in str(raised.value)
    assert raised.value.code == "INVALID_INPUT"


@pytest.mark.parametrize("label", ["../x", "/etc/passwd", "a/b", "a\0b", "..", "x" * 500, "ção", "\ud800", "con.", ""])
def test_a_callers_label_never_becomes_a_path(label: str) -> None:
    name = filename(label)
    digest = name.removeprefix("video.").removesuffix(".mp4")
    assert digest.isalnum()
    assert name not in (filename(label + "!"), filename("?"), filename(digest))


def _bomb(width: int, height: int) -> bytes:
    """Return a white PNG of these dimensions in few bytes."""
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff" * ((width + 7) // 8)) * height, 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
