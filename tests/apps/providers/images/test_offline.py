from __future__ import annotations

import pytest
from PIL import ImageColor

from retoma import GiveUp
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.pictures.stage import COLOURS
from retoma_apps.providers.topics import list_topics
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


async def test_a_prompt_that_names_a_bundled_picture_draws_its_icon_on_its_ground() -> None:
    images, topic = OfflineImages(), list_topics("en")[0]
    prompt = f"#1 {topic.title}. {topic.scenes[0].visual}."
    made = [await images.make(f"{prompt} {note}", width=320, height=180) for note in ("", "More")]
    assert made[0] != made[1]
    grounds = [ImageColor.getrgb(colours.ground) for colours in COLOURS[topic.theme].values()]
    for picture in map(open_picture, made):
        corner = picture.getpixel((2, 2))
        assert isinstance(corner, tuple)
        assert any(all(abs(a - b) < 12 for a, b in zip(corner, ground, strict=True)) for ground in grounds)
