"""Animated pictures: parts appear as they are spoken of, and stay until the next scene."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import av
import pytest
from PIL import Image, ImageChops, ImageColor, ImageStat
from pydantic import ValidationError

from retoma_apps.providers.footage.offline import Frames, OfflineFootage
from retoma_apps.providers.pictures import VARIANTS, Animation, Item, Picture, Scene, find_cues
from retoma_apps.providers.pictures.icons import draw_icon, draw_shapes, get_layers, list_icons, move_layer
from retoma_apps.providers.pictures.layouts import count_to
from retoma_apps.providers.pictures.stage import COLOURS, FLOORS
from retoma_apps.providers.speech import split_sentences
from retoma_apps.providers.topics import Drawing, Topic, TopicScene, find_scene, list_topics

SIZE = (320, 180)
SECONDS = 6.0
SCENES = [
    pytest.param(Scene(scene.picture, scene.text, topic.theme), id=scene.visual)
    for topic in list_topics()
    for scene in topic.scenes
]


def difference(one: Image.Image, other: Image.Image) -> float:
    return sum(ImageStat.Stat(ImageChops.difference(one, other)).mean)


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_starts_empty_and_shows_everything_until_the_next_one_has_arrived(scene: Scene) -> None:
    """So a film never shows an empty frame while one scene slides over the other."""
    animation = Animation(scene, SECONDS, SIZE)
    ground, complete = animation.draw(0), animation.draw_complete()
    assert difference(animation.draw(0.15), ground) == 0
    assert difference(complete, ground) > 2
    assert difference(animation.draw(SECONDS + 0.25), ground) > 0.8 * difference(complete, ground)


def test_the_first_frame_of_a_film_shows_its_title() -> None:
    topic = list_topics("en")[0]
    drawing = Drawing(topic, topic.scenes[0])
    first = Animation(drawing.animate(), SECONDS, SIZE).draw(0).crop((0, 0, SIZE[0] // 2, SIZE[1]))
    complete = Animation(drawing.animate(), SECONDS, SIZE).draw_complete().crop((0, 0, SIZE[0] // 2, SIZE[1]))
    assert difference(first, complete) < 2


@pytest.mark.parametrize("kind", ["steps", "icons", "comparison", "timeline", "number"])
def test_what_is_not_yet_spoken_of_is_shown_faintly(kind: str) -> None:
    """So no half of a picture is empty while its first words are spoken."""
    topic, scene = find_by_kind(kind)
    animation = Animation(Scene(scene.picture, scene.text, topic.theme), 60, SIZE)
    early, complete = (animation.draw(at).crop((SIZE[0] // 2, 40, SIZE[0], 140)) for at in (1.4, 55))
    shapes = early.getcolors(20_000)
    assert shapes is not None
    assert len(shapes) > 50, "only discs or cards"
    assert difference(early, complete) > 1


def test_a_number_that_counts_does_not_cover_its_own_preview() -> None:
    picture = Picture(kind="number", text="R$ 250", cue="sempre", note="por mês")
    animation = Animation(Scene(picture, "isto custa muito, e sempre custou muito", "coffee"), 10, SIZE)
    previous, counting = (animation.draw(at) for at in (2, 4.9))
    where = ImageChops.difference(previous, animation.draw(0)).getbbox()
    assert where is not None
    ground = animation.draw(0)
    left = where[0], 70, where[0] + 6, 90
    assert difference(counting.crop(left), ground.crop(left)) == 0


def test_the_bar_that_is_spoken_of_is_highlighted() -> None:
    items = tuple(Item(label=name, value=value, text=name, cue=name) for name, value in (("um", 9), ("dois", 5)))
    scene = Scene(Picture(kind="chart", items=items), "um e mais tarde dois e fim", "coffee")
    animation = Animation(scene, 10.7, SIZE)
    accent = ImageColor.getrgb(COLOURS["coffee"]["dark"].accent)

    def find_highlight(at: float) -> list[int]:
        frame = animation.draw(at)
        return [x for x in range(SIZE[0]) if frame.getpixel((x, 110)) == accent]

    first, second = find_highlight(3), find_highlight(9.5)
    assert first
    assert second
    assert max(first) < SIZE[0] / 2 < min(second)


def test_pictures_of_different_kinds_have_different_grounds() -> None:
    grounds = {
        Animation(Scene(scene.picture, scene.text, "coffee"), SECONDS, SIZE, subtitles=False).draw(0.301).tobytes()
        for _, scene in map(find_by_kind, ("steps", "icons", "flow", "comparison", "timeline", "number"))
    }
    assert len(grounds) == 6


@pytest.mark.parametrize("scene", SCENES)
def test_no_part_of_a_picture_covers_the_subtitles_or_leaves_the_frame(scene: Scene) -> None:
    animation = Animation(scene, SECONDS, (1920, 1080))
    changed = ImageChops.difference(animation.draw_complete(), animation.draw(0)).convert("L").getbbox()
    assert changed is not None
    left, top, right, bottom = changed
    assert left >= 60
    assert right <= 1860
    assert top >= 60
    assert bottom <= 846


@pytest.mark.parametrize("subtitles", [True, False])
def test_the_last_scene_stays_and_then_fades_but_never_to_an_empty_frame(subtitles: bool) -> None:
    topic = list_topics("en")[0]
    animation = Animation(Drawing(topic, topic.scenes[-1]).animate(), SECONDS, SIZE, subtitles=subtitles)
    assert difference(animation.draw(SECONDS - 0.8), animation.draw_complete()) < 2
    dark = Image.new("RGB", SIZE, FLOORS[topic.theme])
    whole, faded = (difference(animation.draw(at), dark) for at in (SECONDS - 0.8, SECONDS))
    assert 0.1 * whole < faded < 0.5 * whole


@pytest.mark.parametrize("scene", SCENES)
def test_without_subtitles_a_scene_begins_and_ends_behind_a_curtain(scene: Scene) -> None:
    """So clips can be joined unchanged, and no words are cut off."""
    animation = Animation(scene, SECONDS, SIZE, subtitles=False)
    for at in (0, SECONDS):
        assert animation.draw(at).getextrema() == tuple((each, each) for each in get_dark(scene))
    for at in (0.1, SECONDS - 0.1):
        assert difference(animation.draw(at), animation.draw(0)) > 1


def test_the_first_scene_begins_without_a_curtain() -> None:
    topic = list_topics("en")[0]
    animation = Animation(Drawing(topic, topic.scenes[0]).animate(), SECONDS, SIZE, subtitles=False)
    assert animation.draw(0).getextrema() != tuple((each, each) for each in get_dark(topic))


@pytest.mark.parametrize("kind", ["timeline", "comparison", "icons"])
def test_a_picture_goes_on_where_the_previous_part_of_its_scene_ended(kind: str) -> None:
    topic, scene = find_by_kind(kind)
    first, second = (
        Animation(Drawing(topic, scene).animate(part), SECONDS, SIZE, subtitles=False, number=number)
        for number, part in enumerate(halve(scene.text))
    )
    end, start = first.draw(SECONDS), second.draw(0)
    assert difference(end, start) < 3  # icons move a little
    assert difference(second.draw(SECONDS - 0.5), start) > 1
    assert difference(second.draw(SECONDS - 0.5), Animation(Drawing(topic, scene).animate(), SECONDS, SIZE).draw(0)) > 2


def test_a_part_that_is_spoken_of_later_or_earlier_is_hidden_or_shown_from_the_start() -> None:
    found = find_scene("the years of a coffee tree")
    assert found is not None
    topic, scene = found
    parts = [Drawing(topic, scene).animate(part) for part in halve(scene.text)]
    early, late = (find_cues(part, SECONDS) for part in parts)
    assert early[-1] == math.inf
    assert late[0] < 0
    assert all(cue == math.inf or cue < 0 or 0 <= cue < SECONDS for cue in (*early, *late))


def test_text_that_a_person_wrote_still_shows_every_part() -> None:
    topic, scene = find_by_kind("steps")
    assert all(0 < cue < SECONDS for cue in find_cues(Drawing(topic, scene).animate("Other words."), SECONDS))


def find_by_kind(kind: str) -> tuple[Topic, TopicScene]:
    return next((topic, scene) for topic in list_topics() for scene in topic.scenes if scene.picture.kind == kind)


def halve(text: str) -> tuple[str, str]:
    first, *others = split_sentences(text)
    return first, text[text.index(others[0]) :]


def get_dark(of: Scene | Topic) -> tuple[int, ...]:
    return ImageColor.getrgb(FLOORS[of.theme])


def test_an_item_appears_when_its_cue_is_spoken() -> None:
    picture = Picture(kind="icons", items=tuple(Item(label=name, icon="sun", cue=name) for name in ("um", "dois")))
    first, second = find_cues(Scene(picture, "um e mais tarde dois e fim", "coffee"), 10.7)
    assert first < 1
    assert second == pytest.approx(10 * 16 / 26, abs=0.1)


def test_items_without_a_cue_appear_between_their_neighbours() -> None:
    items = (Item(label="a", cue="um"), Item(label="b"), Item(label="c", cue="dois"), Item(label="d"))
    picture = Picture(kind="chart", items=items)
    cues = find_cues(Scene(picture, "um e mais tarde dois e fim e fim e fim", "coffee"), 12)
    assert all(one < other for one, other in pairwise(cues))
    assert cues[1] == pytest.approx((cues[0] + cues[2]) / 2, abs=0.4)


def test_a_picture_moves_while_parts_arrive_and_frames_without_motion_are_reused() -> None:
    topic, still = find_by_kind("diagram")
    frames = list(Animation(Scene(still.picture, still.text, topic.theme), 10, SIZE).draw_frames(300, 30))
    assert len(frames) == 300
    assert 30 < len({id(frame) for frame in frames}) < 200


def test_each_variant_has_other_colours() -> None:
    topic = list_topics("en")[0]
    picture, text = topic.scenes[0].picture, topic.scenes[0].text
    grounds = {
        Animation(Scene(picture, text, topic.theme, variant), 5, SIZE).draw(0).getpixel((2, 2))
        for variant in range(VARIANTS)
    }
    assert len(grounds) == VARIANTS


async def test_a_clip_of_a_bundled_scene_lasts_through_both_transitions(tmp_path: Path) -> None:
    footage = OfflineFootage(Frames(160, 90, 10))
    _, scene = find_by_kind("icons")
    found, *others = await footage.search(scene.visual, language="en", seconds=4)
    await footage.fetch(found, tmp_path / "clip.mp4")
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        frames = [frame.to_image() for frame in clip.decode(video=0)]  # type: ignore[no-untyped-call]
    assert (found.seconds, len(frames), len(others)) == (4.6, 46, VARIANTS - 1)
    assert difference(frames[-7], frames[-1]) < 3
    assert difference(frames[0], frames[-1]) > 20


@pytest.mark.parametrize(
    ("text", "share", "shown"),
    [
        ("R$ 250 mil", 0.5, "R$ 125 mil"),
        ("R$ 250 mil", 1, "R$ 250 mil"),
        ("11 %", 0.1, "1 %"),
        ("90\u201396 °C", 0.5, "90\u201396 °C"),
        ("22,5 %", 0.5, "11,2 %"),
        ("22,5 %", 0, "0,0 %"),
        ("No. 1", 0, "No. 0"),
    ],
)
def test_a_number_counts_up_in_its_own_notation(text: str, share: float, shown: str) -> None:
    assert count_to(text, share) == shown


@pytest.mark.parametrize("name", ["sun", "cup", "leaf", "flame", "waves", "wallet", "drop"])
def test_an_icon_moves_but_stays_visible(name: str) -> None:
    layer = next(layer for layer in get_layers(name) if layer.motion)
    drawn = draw_shapes(layer.shapes, 60)
    frames = [move_layer(drawn, layer, at / 10) for at in range(5, 15)]
    assert len({frame.tobytes() for frame in frames}) > 5
    assert all(frame.size == drawn.size and frame.getbbox() for frame in frames)


def test_every_icon_is_drawn_inside_its_square() -> None:
    for name in list_icons():
        icon = draw_icon(name, 60)
        assert icon.size == (60, 60)
        assert icon.getbbox() is not None, name


@pytest.mark.parametrize(
    "values", [{"kind": "title", "icon": "unicorn"}, {"kind": "steps", "items": []}, {"kind": "painting"}]
)
def test_an_unknown_icon_or_kind_or_a_wrong_number_of_items_is_an_error(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Picture.model_validate(values)
