"""Pictures as data: what is to be seen during a scene, without how it is drawn."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from retoma_apps.providers.pictures.icons import list_icons

Kind = Literal["title", "steps", "icons", "flow", "diagram", "comparison", "chart", "timeline", "number"]
Tone = Literal["dark", "light", "bright"]
Theme = Literal["coffee", "finance", "nature"]
Percent = Annotated[float, Field(ge=0, le=100)]
_MOST_ITEMS = {"steps": 6, "icons": 6, "flow": 6, "diagram": 6, "comparison": 2, "chart": 6, "timeline": 6, "title": 6}
_LEAST_ITEMS = {"steps": 2, "icons": 2, "flow": 2, "diagram": 1, "comparison": 2, "chart": 2, "timeline": 2}


def _check_icon(name: str) -> str:
    if name and name not in list_icons():
        raise ValueError(f"there is no icon {name!r}; there are {', '.join(list_icons())}")
    return name


Icon = Annotated[str, AfterValidator(_check_icon)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Item(Model):
    """A part of a picture. It appears when the narration reaches `cue`, a few words of it.

    `value` is the height of a bar, and `text` what is written above it. `at` is the place on the illustration of a
    diagram that the label points to: x and y in per cent; in a flow, what goes in has an x below 50. `points` are the
    lines on a card of a comparison.
    """

    label: str
    note: str = ""
    icon: Icon = ""
    cue: str = ""
    value: float = Field(0, ge=0)
    text: str = ""
    at: tuple[Percent, Percent] = (50, 50)
    points: tuple[str, ...] = ()


class Picture(Model):
    """`icon` is the illustration of a title, a flow, a diagram or a number. The icons `around` circle that of a title.
    `text` is the number as it is written, and appears when the narration reaches `cue`."""

    kind: Kind
    title: str = ""
    note: str = ""
    text: str = ""
    cue: str = ""
    icon: Icon = ""
    around: tuple[Icon, ...] = ()
    tone: Tone = "dark"
    items: tuple[Item, ...] = ()

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        if not _LEAST_ITEMS.get(self.kind, 0) <= len(self.items) <= _MOST_ITEMS.get(self.kind, 0):
            raise ValueError(f"a picture of kind {self.kind!r} cannot have {len(self.items)} items")
        if self.kind == "comparison" and not all(item.points for item in self.items):
            raise ValueError("each side of a comparison needs points")
        return self

    @property
    def cues(self) -> tuple[str, ...]:
        """The words at which its parts appear; empty where they appear by themselves."""
        return (self.cue,) if self.kind == "number" else tuple(item.cue for item in self.items)

    @property
    def main_icon(self) -> str:
        """The icon that stands for the whole picture, on a thumbnail."""
        return self.icon or next((item.icon for item in self.items if item.icon), "")
