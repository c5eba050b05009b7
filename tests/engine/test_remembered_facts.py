from __future__ import annotations

from retoma import Context, Pipeline
from retoma.records import Fact
from tests.conftest import OpenSandbox

KNOWN = [
    Fact("O Tesouro Selic é o investimento em renda fixa mais líquido.", {"name": "Tesouro"}, 0.9),
    Fact("A poupança rende menos que a renda fixa.", {"name": "Banco"}, 0.6),
    Fact("As plantas fazem fotossíntese de dia.", {"name": "Livro"}, 0.9),
]


def make_learning_pipeline(facts: list[Fact], query: str, language: str = "pt-BR") -> Pipeline:
    pipeline = Pipeline("learning")

    @pipeline.step
    async def learnt(*, ctx: Context) -> int:
        await ctx.remember(facts, language=language)
        return len(facts)

    @pipeline.step
    async def known(learnt: int, *, ctx: Context) -> list[str]:
        return [fact.text for fact in await ctx.recall(query, language=language)]

    return pipeline


async def test_a_fact_is_found_by_its_words_in_any_inflection(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_learning_pipeline(KNOWN, "Como investir em renda fixa")) as sandbox:
        run = await sandbox.run("learning")
        assert run.results["known"] == [KNOWN[0].text, KNOWN[1].text]


async def test_the_same_text_is_stored_once_with_the_higher_confidence(open_sandbox: OpenSandbox) -> None:
    twice = [KNOWN[0], Fact(KNOWN[0].text, {"name": "Outro"}, 0.2)]
    async with open_sandbox(make_learning_pipeline(twice, "renda fixa")) as sandbox:
        await sandbox.run("learning")
        assert (await sandbox.run("learning")).results["known"] == [KNOWN[0].text]


async def test_one_tenant_does_not_see_the_facts_of_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_learning_pipeline([], "renda fixa")) as sandbox:
        pipeline = make_learning_pipeline(KNOWN, "renda fixa")
        async with open_sandbox(pipeline) as other:
            await other.run("learning", tenant="one")
        assert (await sandbox.run("learning", tenant="two")).results["known"] == []


async def test_a_query_without_words_finds_nothing_and_quotes_are_harmless(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_learning_pipeline(KNOWN, "' | & ! :* \\ de o a")) as sandbox:
        assert (await sandbox.run("learning")).results["known"] == []


async def test_a_fact_with_only_half_of_the_words_does_not_match(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_learning_pipeline(KNOWN, "Investir em ouro")) as sandbox:
        assert (await sandbox.run("learning")).results["known"] == []


async def test_english_facts_are_found_by_other_word_forms(open_sandbox: OpenSandbox) -> None:
    reported = [Fact("Savings grow steadily.", {"name": "Bank"}, 0.9)]
    async with open_sandbox(make_learning_pipeline(reported, "saving and growing", "en")) as sandbox:
        assert (await sandbox.run("learning")).results["known"] == [reported[0].text]


async def test_a_confidence_is_returned_as_stored(open_sandbox: OpenSandbox) -> None:
    pipeline = make_learning_pipeline(KNOWN, "renda fixa")

    @pipeline.step
    async def sure(known: list[str], *, ctx: Context) -> list[float]:
        return [fact.confidence for fact in await ctx.recall("renda fixa", language="pt-BR")]

    async with open_sandbox(pipeline) as sandbox:
        assert (await sandbox.run("learning")).results["sure"] == [0.9, 0.6]
