"""The pipelines of the sample data: one that takes long, one that gets stuck, and one that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from retoma import GiveUp, Pipeline, Pool, seconds
from retoma.errors import ProviderRejected
from retoma.translations import N_, Translator

LOCALE = Path(__file__).parent / "locale"
PAGES = 1_200
SECONDS_PER_PAGE = 3.0  # short, so the worker stops soon; with one page at a time, all take an hour
PROBE_SECONDS = 3_600.0
_TITLES = {
    "sample_slow": N_("Sample: a run in progress"),
    "sample_stuck": N_("Sample: a stuck run, whose provider rejects every key"),
    "sample_failed": N_("Sample: a failed run whose webhook cannot be delivered"),
}
STEP_LABELS = {
    "sample_pages": N_("List of pages"),
    "sample_page": N_("One page after the other"),
    "sample_provider": N_("Call of a provider"),
    "sample_input": N_("Check of an input"),
}


class SampleInput(BaseModel):
    language: Literal["en", "pt"] = "en"


def make_pipeline(name: str, **options: object) -> Pipeline:
    def make_title(sample: SampleInput) -> str:
        return Translator(sample.language, [LOCALE]).gettext(_TITLES[name])

    return Pipeline(name, inputs=SampleInput, title=make_title, **options)  # type: ignore[arg-type]


slow = make_pipeline("sample_slow")
rejected = make_pipeline("sample_stuck", stuck_after=seconds(2))
failing = make_pipeline("sample_failed")


@slow.step
def sample_pages() -> list[int]:
    return list(range(1, PAGES + 1))


@slow.each(sample_pages, pool=Pool("sample-pages", capacity=1))
async def sample_page(page: int) -> str:
    await asyncio.sleep(SECONDS_PER_PAGE)
    return f"page {page}"


@rejected.step(pool=Pool("sample-provider", capacity=1))
def sample_provider() -> None:
    raise ProviderRejected("this provider exists only in the sample data, and rejects every key", delay=PROBE_SECONDS)


@failing.step
def sample_input() -> None:
    raise GiveUp("this run exists only in the sample data, and always fails", code="SAMPLE_FAILED")
