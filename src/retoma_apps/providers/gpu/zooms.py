"""Zoom and pan movements over a still picture, as expressions of ffmpeg's zoompan."""

from __future__ import annotations

from typing import Literal

Zoom = Literal["zoomin", "zoomout", "zoompanright", "zoompanleft", "zoompanup", "zoompandown"]
DEFAULT_ZOOMS: tuple[Zoom, ...] = ("zoomin", "zoomout", "zoompanright")

_NEAR = 1.25
_SPREAD = 2  # Work on a larger picture: zoompan cuts at whole pixels, and a slow zoom would jitter.
_MIDDLE_X, _MIDDLE_Y = "(iw-iw/zoom)/2", "(ih-ih/zoom)/2"


def zoom_filter(zoom: Zoom, *, frames: int, width: int, height: int, fps: int) -> str:
    """Return a filter that fills the frame with the cropped image and moves over it for `frames` frames."""
    z, x, y = _path(zoom, f"on/{max(frames - 1, 1)}")
    wide, high = width * _SPREAD, height * _SPREAD
    return (
        f"scale={wide}:{high}:force_original_aspect_ratio=increase,crop={wide}:{high},setsar=1,"
        f"zoompan=z='{z}':x='{x}':y='{y}':d={frames}:s={width}x{height}:fps={fps},format=yuv420p"
    )


def _path(zoom: Zoom, part: str) -> tuple[str, str, str]:
    """Return zoom, x and y over time; `part` goes from 0 at the first frame to 1 at the last."""
    to_right, to_left = f"(iw-iw/zoom)*{part}", f"(iw-iw/zoom)*(1-{part})"
    to_bottom, to_top = f"(ih-ih/zoom)*{part}", f"(ih-ih/zoom)*(1-{part})"
    near = f"{_NEAR}"
    return {
        "zoomin": (f"1+{_NEAR - 1:g}*{part}", _MIDDLE_X, _MIDDLE_Y),
        "zoomout": (f"{_NEAR}-{_NEAR - 1:g}*{part}", _MIDDLE_X, _MIDDLE_Y),
        "zoompanright": (near, to_right, _MIDDLE_Y),
        "zoompanleft": (near, to_left, _MIDDLE_Y),
        "zoompanup": (near, _MIDDLE_X, to_top),
        "zoompandown": (near, _MIDDLE_X, to_bottom),
    }[zoom]
