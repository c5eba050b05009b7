"""Arrange each kind of picture on the stage. Parts appear when the narration reaches them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from retoma_apps.providers.pictures.icons import Point
from retoma_apps.providers.pictures.models import Item, Kind, Picture
from retoma_apps.providers.pictures.stage import FLOOR, TEXT_HEIGHT, WIDTH, Pen, Stage

if TYPE_CHECKING:
    from PIL.Image import Image

_MARGIN, _HEADING_Y, _TOP = 130, 118, 210
_ROOM = WIDTH - 2 * _MARGIN
_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
_PERCENT = re.compile(r"(\d+(?:[.,]\d+)?) ?%")


def arrange(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Put the parts of the picture on the stage. `cues` are the seconds at which its parts appear."""
    _ARRANGEMENTS[picture.kind](picture, stage, cues)


def _arrange_title(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange a large title beside an illustration, with a note and a short list below it."""
    if picture.icon:
        wide, x, y = (510.0, 1430, 428) if picture.around else (640.0, 1450, 430)
        stage.add(stage.draw_disc(wide), x, y, stage.first, "pop")
        stage.add_icon(picture.icon, wide * 0.67, x, y, stage.first + 0.15, floats=True)
        stage.add_orbit(picture.around, 130, 298, x, y, stage.first + 0.5)
    wide = (880 if picture.around else 940) if picture.icon else _ROOM
    rows = [
        (
            0,
            stage.first + 0.1,
            stage.draw_text(picture.title, 118 if not picture.items else 84, wide, weight="Black", rows=3),
        )
    ]
    if picture.note:
        rows.append((26, stage.first + 0.5, _draw_note(stage, picture.note, 50, wide)))
    for at, (item, cue) in enumerate(zip(picture.items, cues, strict=True)):
        rows.append((10 if at else 36, cue, _draw_note(stage, item.label, 54, wide)))
    top = (FLOOR - sum(gap + stage.measure(row)[1] for gap, _, row in rows)) / 2
    stage.add(stage.draw_card(120, 12, 6, stage.colours.accent), _MARGIN + 60, top - 34, stage.first, "right")
    for gap, start, row in rows:
        top += gap
        _add_left(stage, row, _MARGIN, top, start)
        top += stage.measure(row)[1]


def _arrange_row(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange icons with labels in a row; steps are numbered and joined by arrows. They are faint until then."""
    _add_heading(picture, stage)
    count = len(picture.items)
    size = {2: 340, 3: 320, 4: 290, 5: 240}.get(count, 205)
    pitch = min(_ROOM / (count - 0.25), 540)
    middle = (_TOP + FLOOR) / 2 - 92
    for at, (item, cue) in enumerate(zip(picture.items, cues, strict=True)):
        x = WIDTH / 2 + pitch * (at - (count - 1) / 2)
        stage.add(stage.draw_disc(size, stage.colours.card), x, middle, stage.first + 0.1 + at * 0.08, "pop")
        if at and picture.kind == "steps":
            stage.add(_draw_arrow(stage, pitch - size - 36), x - pitch / 2, middle, cue - 0.2, "right")
        stage.add_icon_preview(item.icon, size * 0.66, x, middle, stage.first + 0.3)
        stage.add_icon_on_disc(item.icon, size, x, middle, cue)
        if picture.kind == "steps":
            stage.add(_draw_badge(stage, str(at + 1)), x - size * 0.36, middle - size * 0.36, cue + 0.1, "pop")
        _add_label(item, stage, x, middle + size / 2 + 34, pitch - 36, cue + 0.12)


def _arrange_flow(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange an illustration between what goes in, on its left, and what comes out, on its right."""
    _add_heading(picture, stage)
    sides = [_pick_side(picture, cues, side) for side in (-1, 1)]
    x, y, size = (WIDTH / 2 if all(sides) else 560.0), (_TOP + FLOOR) / 2 - 14, 360.0
    stage.add(stage.draw_disc(size), x, y, stage.first + 0.1, "pop")
    stage.add_icon(picture.icon, size * 0.66, x, y, stage.first + 0.2)
    if picture.note:
        label = stage.draw_text(picture.note, 46, size, align="center", rows=1)
        stage.add(label, x, y + size / 2 + 40, stage.first + 0.3)
    reach = 370.0 if all(sides) else 600.0
    for side, pairs in zip((-1, 1), sides, strict=True):
        for at, (item, cue) in enumerate(pairs):
            level = y + (at - (len(pairs) - 1) / 2) * min(215, 600 / len(pairs))
            _add_flow_item(item, stage, (x, y), (x + side * reach, level), size / 2, cue)


def _pick_side(picture: Picture, cues: Sequence[float], side: int) -> list[tuple[Item, float]]:
    """Return the items on the left (-1) or on the right (1) with their cues."""
    return [pair for pair in zip(picture.items, cues, strict=True) if (1 if pair[0].at[0] >= 50 else -1) == side]


def _add_flow_item(item: Item, stage: Stage, middle: Point, place: Point, radius: float, cue: float) -> None:
    side, size = 1 if place[0] > middle[0] else -1, 168.0
    outer = place[0] + side * (size / 2 + 24)
    inner, far = _shorten_line(middle, place, radius + 22, size / 2 + 20)
    stage.add(stage.draw_disc(size, stage.colours.card), *place, stage.first + 0.3, "pop")
    stage.add_icon_preview(item.icon, size * 0.66, *place, stage.first + 0.4)
    _add_arrow(stage, *((inner, far) if side > 0 else (far, inner)), cue)
    stage.add_icon_on_disc(item.icon, size, *place, cue)
    align: Literal["left", "right"] = "left" if side > 0 else "right"
    room = (WIDTH - 70 - outer) if side > 0 else outer - 70
    rows = [stage.draw_text(item.label, 50, room, align=align, rows=2)]
    rows += [_draw_note(stage, item.note, 44, room, side)] if item.note else []
    top = place[1] - sum(stage.measure(row)[1] for row in rows) / 2
    for number, row in enumerate(rows):
        wide, high = stage.measure(row)
        if not number:
            stage.add_preview(row, outer + side * wide / 2, top + high / 2, stage.first + 0.4)
        stage.add(row, outer + side * wide / 2, top + high / 2, cue + 0.12 + number * 0.12, "fade")
        top += high


def _shorten_line(start: Point, end: Point, before: float, after: float) -> tuple[Point, Point]:
    """Return the ends of a line without so much of it at both ends."""
    length = math.dist(start, end)
    unit = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    return (
        (start[0] + unit[0] * before, start[1] + unit[1] * before),
        (end[0] - unit[0] * after, end[1] - unit[1] * after),
    )


def _arrange_diagram(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange an illustration with labels on both sides that point to its parts."""
    _add_heading(picture, stage)
    size, x, y = 560, WIDTH / 2, (_TOP + FLOOR) / 2 - 4
    stage.add_icon(picture.icon, size, x, y, stage.first + 0.1)
    for side in (-1, 1):
        labels = sorted(_pick_side(picture, cues, side), key=lambda pair: pair[0].at[1])
        for at, (item, cue) in enumerate(labels):
            level = y + (at - (len(labels) - 1) / 2) * min(190, 460 / len(labels))
            target = x + (item.at[0] / 100 - 0.5) * size, y + (item.at[1] / 100 - 0.5) * size
            _add_callout(item, stage, side, level, target, cue)


def _add_callout(item: Item, stage: Stage, side: int, level: float, target: Point, cue: float) -> None:
    edge = WIDTH / 2 + side * 360
    label = stage.draw_text(item.label, 50, 450, align="left" if side > 0 else "right", rows=2)
    _add_leader(stage, (edge, level), target, cue)
    wide, high = stage.measure(label)
    outer = edge + side * 20
    note = _draw_note(stage, item.note, 43, 450, side) if item.note else None
    below = stage.measure(note)[1] if note else 0
    stage.add(label, outer + side * wide / 2, level - below / 2, cue + 0.1)
    if note:
        stage.add(note, outer + side * stage.measure(note)[0] / 2, level + high / 2 + 4, cue + 0.25)


def _add_leader(stage: Stage, start: Point, end: Point, cue: float) -> None:
    """Add a line from a label to what it names, with a dot at its end."""
    room = 14.0
    left, top = min(start[0], end[0]) - room, min(start[1], end[1]) - room
    wide, high = abs(start[0] - end[0]) + 2 * room, abs(start[1] - end[1]) + 2 * room
    inside = [(x - left, y - top) for x, y in (start, end)]

    def draw(pen: Pen) -> None:
        x, y = inside[1]
        pen.draw_line(inside, stage.colours.ink, 5)
        pen.draw_oval(x - 12, y - 12, x + 12, y + 12, stage.colours.ink)
        pen.draw_oval(x - 7, y - 7, x + 7, y + 7, stage.colours.accent)

    stage.add(stage.draw_shape(wide, high, draw), left + wide / 2, top + high / 2, cue, "fade")


def _arrange_comparison(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange two cards side by side, whose lines appear one after the other."""
    _add_heading(picture, stage)
    wide = 780.0
    lines = [
        [stage.draw_text(point, 46, wide - 170, weight="Medium", rows=2) for point in item.points]
        for item in picture.items
    ]
    high = 300 + max(sum(stage.measure(line)[1] + 26 for line in each) for each in lines)
    top = (_TOP + FLOOR - high) / 2 - 6
    for side, item, rows, cue, end in zip(
        (-1, 1), picture.items, lines, cues, [cues[1], stage.spoken_until], strict=True
    ):
        x = WIDTH / 2 + side * (wide / 2 + 26)
        left = x - wide / 2 + 56
        stage.add(stage.draw_card(wide, high, 40, stage.colours.card), x, top + high / 2, stage.first + 0.15)
        stage.add_icon_preview(item.icon, 125, left + 95, top + 146, stage.first + 0.35)
        stage.add_icon_on_disc(item.icon, 190, left + 95, top + 146, cue + 0.1, floats=True)
        label = stage.draw_text(item.label, 60, wide - 56 - 190 - 80, weight="ExtraBold", rows=2)
        stage.add_preview(label, left + 226 + stage.measure(label)[0] / 2, top + 146, stage.first + 0.35)
        stage.add(label, left + 226 + stage.measure(label)[0] / 2, top + 146, cue + 0.15, "fade")
        y, step = top + 280, max(min(end, stage.spoken_until) - max(cue, 0) - 0.8, 0.2) / len(rows)
        for at, row in enumerate(rows):
            start = cue + 0.4 + step * at if cue >= 0 else cue
            stage.add(stage.draw_disc(18, stage.colours.accent), left + 12, y + 30, start, "pop")
            _add_left(stage, row, left + 46, y, start)
            y += stage.measure(row)[1] + 26


def _arrange_chart(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange bars that grow from a line, with their values and icons above and their names below."""
    _add_heading(picture, stage)
    has_icons = any(item.icon for item in picture.items)
    count, base, tallest = len(picture.items), FLOOR - 134.0, 250.0 if has_icons else 380.0
    pitch = min(_ROOM / count, 380 if count > 2 else 520)
    wide = min(pitch * 0.56, 190 if count > 2 else 270)
    most = max(item.value for item in picture.items) or 1
    line = stage.draw_card(pitch * count, 6, 3, stage.colours.soft)
    stage.add(line, WIDTH / 2, base + 3, stage.first + 0.2, "right")
    for at, (item, cue, following) in enumerate(zip(picture.items, cues, [*cues[1:], math.inf], strict=True)):
        x, high = WIDTH / 2 + pitch * (at - (count - 1) / 2), max(tallest * item.value / most, 12)
        for fill, start in ((stage.colours.card, stage.first + 0.3), (stage.colours.accent, cue)):
            stage.add(stage.draw_card(wide, high, 14, fill), x, base - high / 2, start, "up")
        # The bar that is spoken of is highlighted.
        stage.add(stage.draw_card(wide, high, 14, stage.colours.soft), x, base - high / 2, following, "fade")
        value = stage.draw_text(item.text, 58, pitch - 12, weight="Black", align="center", rows=1)
        stage.add(value, x, base - high - 50, cue + 0.35)
        if item.icon:
            stage.add_icon_on_disc(item.icon, 140, x, base - high - 164, cue + 0.45)
        name = stage.draw_text(item.label, 44, pitch - 24, weight="SemiBold", align="center", rows=2)
        stage.add(name, x, base + 22 + stage.measure(name)[1] / 2, stage.first + 0.3)


def _arrange_timeline(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange points on a line that grows from one to the next."""
    _add_heading(picture, stage)
    count, level = len(picture.items), 510.0
    pitch = _ROOM / count
    places = [_MARGIN + pitch * (at + 0.5) for at in range(count)]
    whole = stage.draw_card(places[-1] - places[0], 10, 5, stage.colours.card)
    stage.add(whole, WIDTH / 2, level, stage.first + 0.2, "right")
    for (before, after), cue in zip(pairwise(places), cues[1:], strict=True):
        stage.add(
            stage.draw_card(after - before, 10, 5, stage.colours.soft), (before + after) / 2, level, cue - 0.4, "right"
        )
    for item, x, cue in zip(picture.items, places, cues, strict=True):
        stage.add(stage.draw_disc(44, stage.colours.card), x, level, stage.first + 0.4, "pop")
        stage.add(_draw_dot(stage), x, level, cue, "pop")
        if item.icon:
            stage.add_icon_preview(item.icon, 190, x, level - 150, stage.first + 0.4)
            stage.add_icon(item.icon, 190, x, level - 150, cue + 0.1)
        _add_label(item, stage, x, level + 52, pitch - 40, cue + 0.12)


def _arrange_number(picture: Picture, stage: Stage, cues: Sequence[float]) -> None:
    """Arrange a number that counts up, large beside its illustration. A percentage also fills a ring."""
    _add_heading(picture, stage)
    percent = _PERCENT.search(picture.text)
    if picture.icon:
        stage.add(stage.draw_disc(480), 460, 500, stage.first + 0.1, "pop")
        stage.add_icon(picture.icon, 320, 460, 500, stage.first + 0.25, floats=True)
    if picture.icon and percent:
        whole = float(percent[1].replace(",", ".")) / 100
        stage.add(stage.draw_ring(580, 1, stage.colours.card), 460, 500, stage.first + 0.1, "pop")
        stage.add_counter(lambda share: stage.draw_ring(580, whole * share, stage.colours.accent), 460, 500, cues[0])
    x, wide = (1290, 980) if picture.icon else (WIDTH / 2, _ROOM)
    number = stage.draw_text(picture.text, 210, wide, weight="Black", colour=stage.colours.accent, rows=1)
    size = stage.measure(number)[1] / TEXT_HEIGHT

    @lru_cache(maxsize=2)
    def draw(text: str) -> Image:
        return stage.draw_text(
            text, size, wide * 2, weight="Black", colour=stage.colours.accent, align="center", rows=1
        )

    note = stage.draw_text(picture.note, 52, wide, weight="SemiBold", align="center")
    high, below = stage.measure(number)[1], stage.measure(note)[1]
    top = 500 - (high + 24 + below) / 2
    stage.add_counter(lambda share: draw(count_to(picture.text, share)), x, top + high / 2, cues[0])
    stage.add_preview(number, x, top + high / 2, stage.first + 0.4, cues[0])
    stage.add(note, x, top + high + 24 + below / 2, min(stage.first + 0.5, cues[0]))


def count_to(text: str, share: float) -> str:
    """Return the text with a share of its number, in the same notation; a range does not count."""
    found, *others = _NUMBER.finditer(text)
    if others:
        return text
    decimals = len(re.split("[.,]", found[0])[1]) if re.search("[.,]", found[0]) else 0
    counted = f"{float(found[0].replace(',', '.')) * share:.{decimals}f}"
    return text[: found.start()] + (counted.replace(".", ",") if "," in found[0] else counted) + text[found.end() :]


def _add_heading(picture: Picture, stage: Stage) -> None:
    y = _HEADING_Y - 0.6 * stage.lowered
    if picture.title:
        text = stage.draw_text(picture.title, 64, _ROOM - 44, weight="ExtraBold", rows=1)
        stage.add(stage.draw_card(14, 66, 7, stage.colours.accent), _MARGIN + 7, y, stage.first, "up")
        _add_left(stage, text, _MARGIN + 44, y - stage.measure(text)[1] / 2, stage.first + 0.1)
    if picture.note and picture.kind == "chart":
        _add_left(stage, _draw_note(stage, picture.note, 42, _ROOM - 44), _MARGIN + 44, y + 40, stage.first + 0.2)


def _add_label(item: Item, stage: Stage, x: float, top: float, wide: float, start: float) -> None:
    label = stage.draw_text(item.label, 46, wide, align="center", rows=2)
    high = stage.measure(label)[1]
    stage.add_preview(label, x, top + high / 2, stage.first + 0.4)
    stage.add(label, x, top + high / 2, start, "fade")
    if item.note:
        note = _draw_note(stage, item.note, 44, wide, 0)
        stage.add(note, x, top + high + 12 + stage.measure(note)[1] / 2, start + 0.12)


def _add_left(stage: Stage, image: Image, left: float, top: float, start: float) -> None:
    wide, high = stage.measure(image)
    stage.add(image, left + wide / 2, top + high / 2, start)


def _draw_note(stage: Stage, text: str, size: float, wide: float, side: int = 1) -> Image:
    """Draw less important text. `side` is 1 if it is aligned left, 0 if centred and -1 if aligned right."""
    align = ("center", "left", "right")[side]
    return stage.draw_text(text, size, wide, weight="Medium", colour=stage.colours.soft, align=align)  # type: ignore[arg-type]


def _draw_arrow(stage: Stage, wide: float) -> Image:
    length, high = max(wide, 34.0), 44.0
    tip = [(length - 24, 6.0), (length - 6, high / 2), (length - 24, high - 6)]

    def draw(pen: Pen) -> None:
        pen.draw_line([(5, high / 2), (length - 8, high / 2)], stage.colours.accent, 8)
        pen.draw_line(tip, stage.colours.accent, 8)

    return stage.draw_shape(length, high, draw)


def _add_arrow(stage: Stage, start: Point, end: Point, cue: float) -> None:
    """Add an arrow between two points, which appears a little before the cue."""
    room, tip = 26.0, 24.0
    left, top = min(start[0], end[0]) - room, min(start[1], end[1]) - room
    wide, high = abs(start[0] - end[0]) + 2 * room, abs(start[1] - end[1]) + 2 * room
    (x, y), (to_x, to_y) = ((point[0] - left, point[1] - top) for point in (start, end))
    angle = math.atan2(to_y - y, to_x - x)
    wings = [(to_x - tip * math.cos(angle + turn), to_y - tip * math.sin(angle + turn)) for turn in (-0.7, 0.7)]

    def draw(pen: Pen) -> None:
        pen.draw_line([(x, y), (to_x, to_y)], stage.colours.accent, 8)
        pen.draw_line([wings[0], (to_x, to_y), wings[1]], stage.colours.accent, 8)

    stage.add(stage.draw_shape(wide, high, draw), left + wide / 2, top + high / 2, cue - 0.2, "fade")


def _draw_badge(stage: Stage, text: str) -> Image:
    badge = stage.draw_disc(68, stage.colours.accent)
    drawn = stage.draw_text(text, 40, 68, weight="Black", colour=stage.colours.ground)
    badge.alpha_composite(drawn, ((badge.width - drawn.width) // 2, (badge.height - drawn.height) // 2))
    return badge


def _draw_dot(stage: Stage) -> Image:
    def draw(pen: Pen) -> None:
        pen.draw_oval(0, 0, 44, 44, stage.colours.accent)
        pen.draw_oval(12, 12, 32, 32, stage.colours.ground)

    return stage.draw_shape(44, 44, draw)


_ARRANGEMENTS: dict[Kind, Callable[[Picture, Stage, Sequence[float]], None]] = {
    "title": _arrange_title,
    "steps": _arrange_row,
    "icons": _arrange_row,
    "flow": _arrange_flow,
    "diagram": _arrange_diagram,
    "comparison": _arrange_comparison,
    "chart": _arrange_chart,
    "timeline": _arrange_timeline,
    "number": _arrange_number,
}
