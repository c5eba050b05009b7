"""The demo import: `retoma dev retoma_apps.autowriter --demo` writes two articles of a CSV file once.

One becomes a draft. The other is shorter than requested, so it waits for a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from retoma import Client
from retoma.errors import Conflict
from retoma.records import ALL_TENANTS
from retoma.states import RunState
from retoma.translations import N_
from retoma_apps.autowriter.models import ArticleRequest, Blog
from retoma_apps.autowriter.operations.blogs import set_blog
from retoma_apps.autowriter.operations.imports import start_import
from retoma_apps.autowriter.pages.common import HOME
from retoma_apps.autowriter.pages.messages import create_translator
from retoma_apps.autowriter.pipeline import article, article_import
from retoma_apps.autowriter.steps.csv_file import parse_csv
from retoma_apps.providers.llm import LanguageModel

POLL_SECONDS = 1.0
_HEADER = "blog_id,theme,objective,language,word_count,category"
_STARTED = N_(
    "Two articles are being written from a CSV file: %(address)s%(home)simports/%(run)s\n"
    "One becomes a draft, the other waits for your decision. Import your own file: %(address)s%(home)simports"
)
_ALREADY_ENDED = N_("The sample articles have already been written: %(address)s%(home)s")
_DRAFT = N_("“%(theme)s” is now a draft: %(address)s%(home)s%(run)s")
_NO_DRAFT = N_("“%(theme)s” did not become a draft: %(address)s%(home)s%(run)s")


@dataclass(frozen=True)
class Sample:
    blog_id: str
    blog: Blog
    lines: tuple[str, ...]

    @property
    def file(self) -> bytes:
        return "\n".join([_HEADER, *(f"{self.blog_id},{line}" for line in self.lines)]).encode()


SAMPLES = {
    "pt": Sample(
        "bem-estar",
        Blog(name="Bem-estar", language="pt-BR", categories=["Saúde"]),
        (
            "Café e cafeína,explicar quanto café é seguro por dia,pt-BR,400,Alimentação",
            "Como dormir melhor,explicar quantas horas de sono são necessárias,pt-BR,700,",
        ),
    ),
    "en": Sample(
        "wellbeing",
        Blog(name="Wellbeing", language="en", categories=["Health"]),
        (
            "Coffee and caffeine,explain how much coffee a day is safe,en,400,Food",
            "How to sleep better,explain how many hours of sleep people need,en,700,",
        ),
    ),
}


async def run_demo(model: LanguageModel, client: Client, address: str, language: str) -> AsyncIterator[str]:
    sample, gettext = SAMPLES[language], create_translator(language).gettext
    run = await _start(model, client, sample, key=f"demo-{language}")
    if (await client.runs.get(run)).is_over:
        yield gettext(_ALREADY_ENDED, address=address, home=HOME)
        return
    yield gettext(_STARTED, address=address, home=HOME, run=run)
    for line in parse_csv(sample.file).lines:
        written = await client.wait(await _wait_for_article(client, line.article))
        is_draft = written.state in (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS)
        message = _DRAFT if is_draft else _NO_DRAFT
        yield gettext(message, theme=line.article.theme, address=address, home=HOME, run=written.id)


async def _start(model: LanguageModel, client: Client, sample: Sample, *, key: str) -> UUID:
    """Start the import, or return the one of an earlier start."""
    if (known := await client.runs.find_by_key(key, article_import, tenant=ALL_TENANTS)) is not None:
        return known
    with suppress(Conflict):  # it exists: keep it as it is
        await set_blog(client, sample.blog_id, sample.blog, revision=0)
    return (await start_import(client, model, sample.file, name="demo.csv", key=key)).id


async def _wait_for_article(client: Client, request: ArticleRequest) -> UUID:
    """Return the article of a line once the import has requested it."""
    while True:
        if (found := await client.runs.find_by_key(request.identity, article, tenant=request.blog_id)) is not None:
            return found
        await asyncio.sleep(POLL_SECONDS)
