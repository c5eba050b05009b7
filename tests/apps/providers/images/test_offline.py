from __future__ import annotations

import pytest

from retoma import GiveUp
from retoma_apps.providers.images.offline import OfflineImages
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


async def test_a_prompt_that_names_a_bundled_picture_draws_its_icon() -> None:
    images, visual = OfflineImages(), list_topics("en")[0].scenes[0].visual
    made = [
        await images.make(prompt, width=320, height=180) for prompt in (f"#1 T. {visual}.", f"#1 T. {visual}. More")
    ]
    assert made[0] != made[1]
    colours = [len(open_picture(each).convert("P").getcolors() or []) for each in made]
    gradient = len(open_picture(await images.make("mar", width=320, height=180)).convert("P").getcolors() or [])
    assert max(colours) < gradient
