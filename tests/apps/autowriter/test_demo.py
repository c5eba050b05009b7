"""The demo of AutoWriter: a CSV file of two articles, one of which waits for a decision."""

from __future__ import annotations

import pytest

from tests.apps.autowriter.writer_app import WriterApp

ADDRESS = "http://127.0.0.1:8765"


@pytest.mark.parametrize(
    ("language", "introduction", "ended"),
    [
        ("pt", "Dois artigos estão sendo escritos a partir de um arquivo CSV", "é um rascunho"),
        ("en", "Two articles are being written from a CSV file", "is now a draft"),
    ],
)
async def test_one_article_becomes_a_draft_and_the_other_waits(
    writer_app: WriterApp, language: str, introduction: str, ended: str
) -> None:
    demo = writer_app.api.sandbox.app.demo
    assert demo is not None
    messages = demo(writer_app.client, ADDRESS, language)
    started, (run,) = await anext(messages), await writer_app.client.runs.list()
    assert started.startswith(f"{introduction}: {ADDRESS}/articles/imports/{run.id}\n")
    await writer_app.work()
    assert ended in await anext(messages)
    articles = await writer_app.client.runs.list(pipeline="article")
    assert {each.state for each in articles} == {"completed", "paused"}
    (waiting,) = [each for each in articles if not each.is_over]
    (finding,) = (await writer_app.get_results(waiting.id))["quality_checked"]["findings"]
    assert (finding["check"], finding["level"]) == ("length", "warn")
    await writer_app.decide(waiting.id, "approve")
    assert ended in await anext(messages)
    (again,) = [each async for each in demo(writer_app.client, ADDRESS, language)]
    assert again.endswith(f"{ADDRESS}/articles/")
    assert len(await writer_app.client.runs.list()) == 3
