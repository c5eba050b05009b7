"""Small pipelines of every shape. Their functions are never called: the state machine chooses how each job ends."""

from __future__ import annotations

from retoma import Items, Pipeline, Pool

chain = Pipeline("chain")


@chain.step
def first() -> int:
    return 0


@chain.step(when=lambda first: True)
def second(first: int) -> int:
    return 0


@chain.step
def third(second: int) -> int:
    return 0


diamond = Pipeline("diamond")


@diamond.step
def top() -> int:
    return 0


@diamond.step(on_failure="continue")
def left(top: int) -> int:
    return 0


@diamond.step(on_failure="continue")
def right(top: int) -> int:
    return 0


@diamond.step(on_failure="continue")
def bottom(left: int, right: int = 0) -> int:
    return 0


@diamond.step(after=[bottom])
def epilogue(top: int) -> int:
    return 0


fan = Pipeline("fan")


@fan.step(on_failure="continue")
def source() -> list[str]:
    return []


@fan.step(on_failure="continue")
def shared() -> int:
    return 0


@fan.each(source)
def item(element: str) -> int:
    return 0


@fan.each(source)
def chained(item: int, shared: int) -> int:
    return 0


@fan.each(source)
def beside(element: str, shared: int = 0) -> int:
    return 0


@fan.step
def joined(chained: Items[int], beside: Items[int]) -> int:
    return 0


pairs = Pipeline("pairs")


@pairs.step
def scenes() -> list[str]:
    return []


@pairs.step(on_failure="continue")
def languages() -> list[str]:
    return []


@pairs.each(scenes, languages, on_failure="stop")
def translation(scene: str, language: str) -> int:
    return 0


@pairs.each(scenes)
def picture(scene: str) -> int:
    return 0


@pairs.step
def film(picture: Items[int], translation: Items[int]) -> int:
    return 0


GPU = Pool("gpu", capacity=3)
studio = Pipeline("studio")


@studio.step(on_failure="continue")
def frames() -> list[str]:
    return []


@studio.each(frames, pool=GPU)
def drawn(frame: str) -> int:
    return 0


@studio.each(frames, pool=GPU, slots=2)
def inked(drawn: int) -> int:
    return 0


@studio.step(pool=GPU, slots=3, on_failure="continue")
def score() -> int:
    return 0


@studio.step(pool=GPU)
def cut(inked: Items[int], score: int = 0) -> int:
    return 0


SHAPES = [chain, diamond, fan, pairs, studio]
