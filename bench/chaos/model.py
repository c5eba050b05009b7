"""The expected results of each pipeline of the chaos application, in plain Python, independent of the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from uuid import UUID

from bench.chaos import chance, fake_provider
from bench.chaos.chance import mix


@dataclass(frozen=True)
class Missing:
    """There is no result."""


Input = object
JobName = tuple[str, str]  # step and item


@dataclass
class Story:
    """The history of a run. `quarantined` are jobs without a result, because three workers died running them. A
    cancelled run had `reached` that revision. `failed_children` are the nonces of child runs that did not complete."""

    run: UUID
    nonce: str
    size: int
    quarantined: set[JobName]
    reached: int | None = None
    failed_children: Collection[str] = ()
    states: dict[JobName, str] = field(default_factory=dict)
    values: dict[JobName, Input] = field(default_factory=dict)
    is_stopped: bool = False
    is_rejected: bool = False
    has_errors: bool = False

    @property
    def state(self) -> str:
        if self.is_stopped or any(not self._is_known(job) for job in self.quarantined):
            return "failed"
        if self.is_rejected:
            return "rejected"
        return "completed_with_errors" if self.has_errors else "completed"

    def step(
        self, name: str, *inputs: Input, item: str = "", fails: bool = False, wanted: bool = True, stops: bool = True
    ) -> Input:
        job = name, item
        is_runnable = not any(isinstance(each, Missing) for each in inputs)
        # A worker finds out that a job is not wanted, and may die of something else meanwhile.
        if is_runnable and (job in self.quarantined or (wanted and fails)):
            self.states[job] = "quarantined" if job in self.quarantined else "failed"
            self.has_errors = True
            self.is_stopped |= stops
            return Missing()
        if not wanted or not is_runnable:
            self.states[job] = "skipped"
            return Missing()
        self.states[job] = "succeeded"
        self.values[job] = mix(name, item, *inputs)
        return self.values[job]

    def review(self, name: str, subject: Input) -> Input:
        """An approved value equals what the reviewer saw."""
        if isinstance(self.step(name, subject), Missing):
            return Missing()
        if chance.decision(self.run, 2) == "reject":
            self.is_rejected = True
            self.states[name, ""] = "cancelled"
            del self.values[name, ""]
            return Missing()
        self.values[name, ""] = subject
        return subject

    def parts(self, name: str, size: int) -> list[str]:
        self.step(name)
        del self.values[name, ""]  # a list of names is not a number
        return [f"{name}-{number}" for number in range(size)]

    def each(self, name: str, items: dict[str, tuple[Input, ...]]) -> dict[str, Input]:
        return {item: self.step(name, *inputs, item=item, stops=False) for item, inputs in items.items()}

    def _is_known(self, job: JobName) -> bool:
        return self.states.get(job) == "quarantined"


def join_values(items: dict[str, Input]) -> Input:
    good = sorted((key, value) for key, value in items.items() if not isinstance(value, Missing))
    return good, sorted(key for key, value in items.items() if isinstance(value, Missing))


def or_none(value: Input) -> Input:
    return None if isinstance(value, Missing) else value


def chain(story: Story) -> None:
    result = story.step("first", story.nonce)
    for name in ("second", "third", "fourth"):
        result = story.step(name, result)


def album(story: Story) -> None:
    recorded = {
        track: story.step("recorded", track, item=track, fails=chance.fails(story.run, "recorded", track), stops=False)
        for track in story.parts("tracks", story.size)
    }
    mixed = story.each("mixed", {track: (made,) for track, made in recorded.items()})
    story.step("record", join_values(mixed))


def diamond(story: Story) -> None:
    top = story.step("top", story.nonce)
    story.step("bottom", story.step("left", top), story.step("right", top))


def film(story: Story) -> None:
    scenes, languages = story.parts("scenes", story.size), story.parts("languages", 2)
    pairs: dict[str, tuple[Input, ...]] = {f"{s}|{language}": (s, language) for s in scenes for language in languages}
    story.step("reel", join_values(story.each("dubbed", pairs)))


def gallery(story: Story) -> None:
    motifs, style = story.parts("motifs", story.size), story.step("style", story.nonce)
    story.step("exhibition", join_values(story.each("painted", {motif: (motif, style) for motif in motifs})))


def weather(story: Story) -> None:
    stations = story.parts("stations", story.size)
    story.step("forecast", join_values(story.each("measured", {station: (station,) for station in stations})))


def menu(story: Story) -> None:
    dessert = story.step("dessert", story.nonce, wanted=chance.is_wanted(story.nonce, "dessert"))
    dishes = {
        guest: story.step(
            "dish", guest, story.nonce, item=guest, wanted=chance.is_wanted(story.nonce, guest), stops=False
        )
        for guest in story.parts("guests", story.size)
    }
    drinks = story.each("drink", {guest: (dish,) for guest, dish in dishes.items()})
    story.step("table", join_values(drinks), or_none(dessert))
    story.step("coffee", dessert)


def trial(story: Story) -> None:
    evidence = story.parts("evidence", story.size)
    weighed = story.each("weighed", {piece: (piece,) for piece in evidence})
    hearing = story.step("hearing", story.nonce, fails=chance.stops(story.run))
    story.step("verdict", join_values(weighed), hearing)


def parcel(story: Story) -> None:
    label = story.step("label", story.nonce, fails=chance.stops(story.run), stops=False)
    box = story.step("box", story.nonce, or_none(label))
    story.step("stamp", label)
    story.step("bill", box)


def laboratory(story: Story) -> None:
    samples = story.parts("samples", min(story.size, 3))
    story.step("report", join_values(story.each("assay", {sample: (sample,) for sample in samples})))


def rendering(story: Story) -> None:
    shots = story.parts("shots", min(story.size, 3))
    inputs: dict[str, tuple[Input, ...]] = {
        shot: (shot, fake_provider.result_of(fake_provider.key_of(story.run, "clip", shot))) for shot in shots
    }
    poster = story.step("poster", story.nonce, fake_provider.result_of(fake_provider.key_of(story.run, "poster")))
    story.step("feature", join_values(story.each("clip", inputs)), poster)


def correspondence(story: Story) -> None:
    story.step(
        "archive", story.step("letter", story.nonce, fake_provider.result_of(fake_provider.key_of(story.run, "letter")))
    )


def voyage(story: Story) -> None:
    ships = {
        port: story.step("ship", port, item=port, fails=chance.fails(story.run, "ship", port), stops=False)
        for port in story.parts("ports", min(story.size, 3))
    }
    story.step("arrival", join_values(ships), story.step("captain", story.nonce, fails=chance.stops(story.run)))


def column(story: Story) -> None:
    revision = story.reached or (2 if chance.decision(story.run, 1) == "send_back" else 1)
    story.step("printed", story.review("approval", story.step("draft", story.nonce, revision)))


def printing(story: Story) -> None:
    pages = {
        page: story.step("page", page, item=page, fails=chance.fails(story.run, "page", page), stops=False)
        for page in story.parts("pages", story.size)
    }
    story.step("book", join_values(pages), story.step("cover", story.nonce))


def anthology(story: Story) -> None:
    stories = {}
    for author in story.parts("authors", story.size):
        nonce = chance.child_nonce(story.nonce, author)
        child = predict_run("diamond", story.run, nonce, 0, set())
        stories[author] = story.step(
            "story",
            author,
            child.values["bottom", ""],
            item=author,
            fails=nonce in story.failed_children,
            stops=False,
        )
    story.step("volume", join_values(stories))


def receipt(story: Story) -> None:
    story.step("filed", story.step("entered", story.nonce))


def wager(story: Story) -> None:
    story.step("settled", story.step("staked", story.nonce))


def bell(story: Story) -> None:
    story.step("rung", story.nonce)


PIPELINES: dict[str, Callable[[Story], None]] = {
    told.__name__: told
    for told in (
        chain,
        album,
        diamond,
        film,
        gallery,
        weather,
        menu,
        trial,
        parcel,
        laboratory,
        rendering,
        correspondence,
        voyage,
        column,
        printing,
        anthology,
        receipt,
        wager,
        bell,
    )
}


def predict_run(
    pipeline: str,
    run: UUID,
    nonce: str,
    size: int,
    quarantined: set[JobName],
    reached: int | None = None,
    failed_children: Collection[str] = (),
) -> Story:
    story = Story(run, nonce, size, quarantined, reached, failed_children)
    PIPELINES[pipeline](story)
    return story
