from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageColor

from retoma_apps.media.thumbnails import LAYOUTS, MAX_BYTES, PALETTES, SIZE, Layout, draw_thumbnail
from retoma_apps.providers.pictures.stage import COLOURS, TONES
from retoma_apps.providers.topics import Drawing, list_topics, write_jpeg

TEXT = "Ação, coração e pão às três"


def draw_sample(folder: Path, text: str, layout: Layout = "left", background: bytes | None = None) -> Image.Image:
    draw_thumbnail(background, text, folder / "t.png", PALETTES[0], layout)
    return Image.open(folder / "t.png").convert("RGB")


def find_text_box(folder: Path, text: str, layout: Layout = "left") -> tuple[int, int, int, int] | None:
    """Return the bounding box of the words: the difference from the same thumbnail without them."""
    return ImageChops.difference(draw_sample(folder, text, layout), draw_sample(folder, "", layout)).getbbox()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("text", [TEXT, "W" * 300, "palavra " * 400, "Ç" * 9])
def test_text_of_any_length_stays_within_the_thumbnail(tmp_path: Path, layout: Layout, text: str) -> None:
    box = find_text_box(tmp_path, text, layout)
    assert box is not None
    assert box[0] > 20
    assert box[1] > 20
    assert box[2] < SIZE[0] - 20
    assert box[3] < SIZE[1] - 20


def test_short_text_is_large(tmp_path: Path) -> None:
    box = find_text_box(tmp_path, "Pão", "centre")
    assert box is not None
    assert box[3] - box[1] > 120


def test_accented_letters_are_drawn_correctly(tmp_path: Path) -> None:
    shown = [draw_sample(tmp_path, text).tobytes() for text in ("c", "ç", "ã", "a", "\U000f0000", "\U000f0001")]
    assert len(set(shown[:5])) == 5
    assert shown[4] == shown[5], "letters that the font lacks look all the same"


def test_the_three_layouts_differ(tmp_path: Path) -> None:
    assert len({find_text_box(tmp_path, TEXT, layout) for layout in LAYOUTS}) == 3


def test_a_busy_image_with_another_aspect_ratio_fills_a_thumbnail_that_is_small_enough(tmp_path: Path) -> None:
    busy = Image.merge("RGB", [Image.effect_noise((700, 900), 120) for _ in range(3)])
    file = io.BytesIO()
    busy.save(file, "PNG")
    image = draw_sample(tmp_path, TEXT, "bottom", file.getvalue())
    assert image.size == SIZE
    assert (tmp_path / "t.png").stat().st_size < MAX_BYTES
    assert len(set(image.crop((0, 0, 1280, 60)).get_flattened_data())) > 10


@pytest.mark.parametrize("thing", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"<svg/>", b"%!PS-Adobe-3.0 EPSF-3.0"])
def test_a_background_that_is_not_an_image_is_rejected(tmp_path: Path, thing: bytes) -> None:
    with pytest.raises(ValueError, match="the background"):
        draw_thumbnail(thing, TEXT, tmp_path / "t.png")
    assert list(tmp_path.iterdir()) == []


def test_a_background_with_far_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(file, "PNG")
    with pytest.raises(ValueError, match="too large"):
        draw_thumbnail(file.getvalue(), TEXT, tmp_path / "t.png")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("text", ["200 °C", "W" * 24, "palavra " * 400])
def test_a_drawing_is_replaced_by_an_icon_beside_the_words(tmp_path: Path, layout: Layout, text: str) -> None:
    topic = list_topics("en")[1]
    drawing = write_jpeg(Image.new("RGB", (64, 36), "#ff00ff"), Drawing(topic, topic.scenes[1]))
    drawn, empty = (draw_sample(tmp_path, words, layout, drawing) for words in (text, "."))
    box = ImageChops.difference(drawn, empty).getbbox()
    assert box is not None
    assert 20 < box[0] < box[2] < SIZE[0] - 20
    assert 20 < box[1] < box[3] < SIZE[1] - 20
    ground = ImageColor.getrgb(COLOURS[topic.theme][TONES[LAYOUTS.index(layout)]].ground)
    assert drawn.getpixel((2, 2)) == ground


def test_a_word_that_does_not_fit_beside_an_icon_is_drawn_without_it(tmp_path: Path) -> None:
    topic = list_topics("en")[1]
    drawing = write_jpeg(Image.new("RGB", (64, 36)), Drawing(topic, topic.scenes[1]))
    drawn = draw_sample(tmp_path, "W" * 300, "left", drawing)
    assert ImageChops.difference(drawn, draw_sample(tmp_path, "W" * 300)).getbbox() is None


def test_the_icon_beside_the_words_of_a_topic_shows_what_they_say() -> None:
    topic = next(topic for topic in list_topics("en") if topic.theme == "coffee")
    drawing = Drawing(topic, topic.scenes[0])
    assert drawing.find_icon("200 °C") == "flame"
    assert drawing.find_icon("OTHER WORDS") == "cup"
