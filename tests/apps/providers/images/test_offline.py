from __future__ import annotations

import pytest
from PIL import ImageColor

from retoma import GiveUp
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.pictures.stage import COLOURS, TONES
from retoma_apps.providers.topics import Drawing, list_topics, read_drawing
from tests.apps.providers.images.conftest import open_picture


async def test_the_same_prompt_returns_the_same_image_and_another_prompt_another() -> None:
    images = OfflineImages()
    made = [await images.make(prompt, width=64, height=36) for prompt in ("vulcão", "vulcão", "mar")]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("size", [(1, 1), (65, 37), (1280, 720)])
async def test_an_image_has_the_requested_size(size: tuple[int, int]) -> None:
    picture = open_picture(await OfflineImages().make("\ud800\x00'{", width=size[0], height=size[1]))
    assert (picture.format, picture.size) == ("JPEG", size)


@pytest.mark.parametrize("size", [(0, 10), (10, 5000)])
async def test_no_image_is_drawn_that_would_exhaust_the_memory(size: tuple[int, int]) -> None:
    with pytest.raises(GiveUp, match="4096"):
        await OfflineImages().make("x", width=size[0], height=size[1])


async def test_a_prompt_that_names_a_bundled_picture_draws_it_and_another_version_in_other_colours() -> None:
    images, topic = OfflineImages(), list_topics("en")[0]
    prompt = f"#1 {topic.title}. {topic.scenes[0].visual}."
    made = [await images.make(f"{prompt} {version}", width=320, height=180) for version in ("", "Version 2.")]
    tones = TONES[TONES.index(topic.scenes[0].picture.tone) :]
    for picture, tone in zip(map(open_picture, made), tones, strict=False):
        corner, ground = picture.getpixel((2, 2)), ImageColor.getrgb(COLOURS[topic.theme][tone].ground)
        assert isinstance(corner, tuple)
        assert all(abs(a - b) < 12 for a, b in zip(corner, ground, strict=True))


async def test_a_drawn_picture_names_the_scene_that_it_shows() -> None:
    images, topic = OfflineImages(), list_topics("pt-BR")[0]
    scene = topic.scenes[3]
    made = await images.make(f"{scene.visual}. Version 3.", width=64, height=36)
    assert read_drawing(made) == Drawing(topic, scene, variant=2)
    assert read_drawing(await images.make("nothing known", width=64, height=36)) is None
    assert read_drawing(made[:20]) is read_drawing(b"not a picture") is None
