"""Notes of a reviewer that the offline writer or drawn shapes cannot follow are refused before work is sent back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from retoma.reviews import Feedback
from retoma.store.database import Database
from retoma.translations import Translator
from retoma_apps.autowriter.pages.messages import LOCALE
from retoma_apps.autowriter.pages.reasons import list_review_reasons
from retoma_apps.autowriter.services import FollowsNotes
from retoma_apps.autowriter.steps.feedback_checks import check_image_feedback, check_text_feedback
from retoma_apps.autowriter.steps.writing.offline import OFFLINE_MODEL
from retoma_apps.providers.images.errors import ImageUnavailable
from tests.apps.autowriter.samples import make_request
from tests.apps.autowriter.writer_app import Pictures, WriterApp, open_writer_app
from tests.conftest import empty_database

VERSION = "outra versão"


@pytest.fixture
async def offline_app(database: Database, tmp_path: Path) -> AsyncIterator[WriterApp]:
    """AutoWriter with the offline writer, and images that follow no notes. The first image fails."""
    await empty_database(database)
    shapes = Pictures()
    shapes.follows_notes = False
    shapes.errors["larga"] = [ImageUnavailable("no answer")] * 3
    async with open_writer_app(database, tmp_path, llm=OFFLINE_MODEL, images=shapes) as opened:
        yield opened


async def send_back(app: WriterApp, run: UUID, **values: Any) -> httpx2.Response:
    return await app.api.post(f"/autowriter/jobs/{run}/decision", json={"action": "rerun", **values})


async def check_refused(app: WriterApp, run: UUID, variable: str, **values: Any) -> None:
    answer = await send_back(app, run, **values)
    assert (answer.status_code, answer.json()["code"]) == (422, "FEEDBACK_NOT_SUPPORTED")
    assert f"“{values['notes']}” is not supported: " in answer.json()["detail"]
    assert variable in answer.json()["detail"]
    shown = await app.show(run)
    assert (shown["state"], shown["revision"]) == ("needs_review", 1)


@pytest.mark.parametrize("part", ["content_created", "title_slug_created"])
async def test_the_offline_writer_can_only_write_another_version(offline_app: WriterApp, part: str) -> None:
    run = (await offline_app.write(make_request(word_count=600))).id
    before = (await offline_app.get_results(run))[part]
    for notes in ("em verso, sobre submarinos", f"{VERSION}, em verso"):
        await check_refused(offline_app, run, "OPENROUTER_API_KEY", step=part, notes=notes)
    assert (await send_back(offline_app, run, step=part, notes=VERSION)).status_code == 200
    await offline_app.work()
    assert (await offline_app.get_results(run))[part] != before


@pytest.mark.parametrize("part", ["meta_created", "headings_created", "outline_created", "brief_created"])
async def test_a_part_that_the_offline_writer_cannot_change_is_not_sent_back(offline_app: WriterApp, part: str) -> None:
    run = (await offline_app.write(make_request(word_count=600))).id
    for notes in ("em verso, sobre submarinos", VERSION):
        await check_refused(offline_app, run, "OPENROUTER_API_KEY", step=part, notes=notes)


async def test_drawn_shapes_can_only_be_drawn_again(offline_app: WriterApp) -> None:
    run = (await offline_app.write()).id
    await check_refused(offline_app, run, "IMAGES_API_KEY", step="images_resolved", notes="ponha um gato")
    assert (await send_back(offline_app, run, step="images_resolved", notes="outras imagens")).status_code == 200
    await offline_app.work()
    assert await offline_app.get_state(run) == "done"


@pytest.mark.parametrize("language", ["en", "pt"])
def test_the_reasons_without_a_model_are_those_that_the_steps_can_follow(language: str) -> None:
    say, follows = Translator(language, (LOCALE,)).gettext, FollowsNotes(text=False, images=False)
    checks = {"images_resolved": check_image_feedback}
    offered = [
        (checks.get(step, check_text_feedback), say(reason))
        for steps in list_review_reasons(follows).values()
        for step, reasons in steps.items()
        for reason in reasons
    ]
    assert len(offered) == 3
    for check, notes in offered:
        check(Feedback(notes=notes), follows_notes=follows)
