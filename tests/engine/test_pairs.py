"""Items that are pairs: one element of each of several lists."""

from __future__ import annotations

from pydantic import BaseModel

from retoma import Items, Pipeline
from tests.conftest import OpenSandbox
from tests.engine.builders import names, run_claims, run_next, states


class Story(BaseModel):
    scenes: list[str] = ["beach", "city"]
    languages: list[str] = ["en", "pt"]


class Scene(BaseModel):
    slug: str
    text: str


async def test_an_each_over_two_lists_runs_for_every_pair_in_order(open_sandbox: OpenSandbox) -> None:
    pipeline = translations()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["book"] == {
        "beach|en": "BEACH in en",
        "beach|pt": "BEACH in pt",
        "city|en": "CITY in en",
        "city|pt": "CITY in pt",
    }


async def test_a_pair_proceeds_while_another_has_not_started(open_sandbox: OpenSandbox) -> None:
    pipeline = translations()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "languages", "scenes")
        await run_next(worker, "scenes*languages")
        (first,) = await worker.claim(1)
        (second,) = await worker.record_outcomes(await worker.attempt([first]), limit=1)
        assert (second.step, second.item) == ("loud", first.item)
        await run_claims(worker, [second])
        found = await states(sandbox, run)
        assert [found[f"translation:{pair}"] for pair in ("beach|en", "beach|pt", "city|en", "city|pt")].count(
            "ready"
        ) == 3


async def test_pairs_with_an_empty_list_join_at_once(open_sandbox: OpenSandbox) -> None:
    pipeline = translations()
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, {"languages": []})
    assert (run.state, run.results["book"]) == ("completed", {})


async def test_pairs_of_a_result_and_an_input_have_a_key_for_each_part(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("keys", inputs=Story)

    @pipeline.step
    async def shots(scenes: list[str]) -> list[Scene]:
        return [Scene(slug=scene[0], text=scene) for scene in scenes]

    @pipeline.each(shots, "languages", key=["slug", None])
    async def subtitle(shot: Scene, language: str) -> str:
        return f"{shot.text} {language}"

    @pipeline.step
    async def film(subtitle: Items[str]) -> dict[str, str]:
        return subtitle.by_key

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, {"languages": ["en"]})
    assert run.results["film"] == {"b|en": "beach en", "c|en": "city en"}


async def test_items_may_combine_three_lists(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("three", inputs=Story)

    @pipeline.step
    async def sizes() -> list[int]:
        return [1, 2]

    @pipeline.each("scenes", "languages", sizes)
    async def banner(scene: str, language: str, size: int) -> str:
        return f"{scene}/{language}/{size}"

    @pipeline.step
    async def all_banners(banner: Items[str]) -> list[str]:
        return list(banner)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, {"scenes": ["beach"]})
    assert run.results["all_banners"] == ["beach/en/1", "beach/en/2", "beach/pt/1", "beach/pt/2"]


async def test_pairs_and_the_items_of_one_of_their_lists_are_different_fan_outs(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("both", inputs=Story)

    @pipeline.each("scenes")
    async def image(scene: str) -> str:
        return scene

    @pipeline.each("scenes", "languages")
    async def caption(scene: str, language: str) -> str:
        return f"{scene} {language}"

    @pipeline.step
    async def film(image: Items[str], caption: Items[str]) -> list[int]:
        return [len(image), len(caption)]

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        await run_next(worker, "languages", "scenes")
        assert names(await worker.claim(10)) == ["image:beach", "image:city", "scenes*languages"]
        await worker.close()
        await sandbox.work()
        (run,) = await sandbox.client.runs.list()
        assert (await sandbox.client.runs.get_results(run.id))["film"] == [2, 4]


def translations() -> Pipeline:
    pipeline = Pipeline("story", inputs=Story)

    @pipeline.each("scenes", "languages")
    async def translation(scene: str, language: str) -> str:
        return f"{scene} in {language}"

    @pipeline.each("scenes", "languages")
    async def loud(translation: str, scene: str, language: str) -> str:
        assert scene in translation
        return translation.replace(scene, scene.upper())

    @pipeline.step
    async def book(loud: Items[str]) -> dict[str, str]:
        return loud.by_key

    return pipeline
