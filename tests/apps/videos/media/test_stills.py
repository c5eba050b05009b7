"""Moving pictures from still ones: a slow zoom, or the animation of a drawing."""

from __future__ import annotations

from pathlib import Path

import av
from PIL import Image, ImageChops, ImageStat

from retoma_apps.media.stills import Format, render_drawing, render_still
from retoma_apps.providers.topics import Drawing, list_topics
from tests.apps.videos.media.material import SMALL

FORM = Format(frames=40, size=SMALL, fps=10)


def read_frames(clip: Path) -> list[Image.Image]:
    with av.open(str(clip)) as video:
        return [frame.to_image() for frame in video.decode(video=0)]  # type: ignore[no-untyped-call]


def difference(one: Image.Image, other: Image.Image) -> float:
    return sum(ImageStat.Stat(ImageChops.difference(one, other)).mean)


async def test_a_still_picture_moves_for_as_many_frames_as_requested(tmp_path: Path) -> None:
    Image.radial_gradient("L").convert("RGB").save(tmp_path / "picture.png")
    await render_still(tmp_path / "picture.png", tmp_path / "clip.mp4", "zoomin", FORM)
    frames = read_frames(tmp_path / "clip.mp4")
    assert (len(frames), frames[0].size) == (40, SMALL)
    assert difference(frames[0], frames[-1]) > 2


async def test_the_parts_of_a_drawing_appear_while_it_is_shown(tmp_path: Path) -> None:
    topic = list_topics("en")[0]
    scene = next(scene for scene in topic.scenes if scene.picture.kind == "diagram" or scene.picture.kind == "flow")
    await render_drawing(Drawing(topic, scene), scene.text, 2, tmp_path / "clip.mp4", FORM)
    frames = read_frames(tmp_path / "clip.mp4")
    assert (len(frames), frames[0].size) == (40, SMALL)
    assert difference(frames[10], frames[30]) > 2
    assert difference(frames[0], frames[10]) > 20, "the curtain opens"
