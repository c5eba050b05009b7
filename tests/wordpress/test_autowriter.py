"""AutoWriter publishes to a real WordPress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import SecretStr

from retoma.files import FileSettings, create_file_store
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma.testing import Sandbox, sandbox
from retoma_apps.autowriter.application import make_app
from retoma_apps.autowriter.models import Blog
from retoma_apps.autowriter.operations.articles import request_article, rerun_part
from retoma_apps.autowriter.operations.decisions import decide_article, get_open_review
from retoma_apps.autowriter.operations.details import get_details
from retoma_apps.autowriter.steps.writing.offline import OFFLINE_MODEL
from retoma_apps.providers.images.offline import OfflineImages
from retoma_apps.providers.keywords import OfflineKeywords
from retoma_apps.providers.wordpress import WordPress, WordPressSettings
from tests.apps.autowriter.samples import make_request
from tests.conftest import empty_database
from tests.wordpress.posts import count_posts, edit_post, read_post
from tests.wordpress.site import WordPress as Server


@dataclass
class Journey:
    """AutoWriter in a sandbox, connected to a WordPress."""

    sandbox: Sandbox
    server: Server

    async def write(self, objective: str) -> UUID:
        request = make_request(objective=objective)
        run = (await request_article(self.sandbox.client, OFFLINE_MODEL, request, by="ana")).run.id
        await self.sandbox.work()
        return run

    async def rerun(self, run: UUID, group: str) -> None:
        found = await self.sandbox.client.runs.get(run)
        await rerun_part(self.sandbox.client, found, group=group, by="ana")  # type: ignore[arg-type]
        await self.sandbox.work()

    async def get_post(self, run: UUID) -> tuple[int, dict[str, object]]:
        """Return the number of the article's post, and the post as WordPress has it."""
        details = await get_details(self.sandbox.client, await self.sandbox.client.runs.get(run))
        assert details.summary.published is not None, details.error
        post_id = details.summary.published.post_id
        return post_id, await asyncio.to_thread(read_post, self.server, post_id)

    async def count_posts(self, objective: str) -> int:
        return await asyncio.to_thread(count_posts, self.server, make_request(objective=objective).identity)


@pytest.fixture
async def journey(database: Database, tmp_path: Path, site: Server) -> AsyncIterator[Journey]:
    await empty_database(database)
    settings = WordPressSettings(base_url=f"{site.address}/", secret=SecretStr(site.credentials["/"]))
    blog = WordPress(settings)
    app = make_app(
        llm=OFFLINE_MODEL,
        images=OfflineImages(),
        keywords=OfflineKeywords(),
        open_blog=lambda _: blog,
        files=create_file_store(FileSettings(home=tmp_path)),
    )
    async with sandbox(app, database) as opened:
        await opened.client.tenants.set_profile("saude", Blog(name="Saúde", categories=["Bebidas"]).model_dump())
        yield Journey(opened, site)
    await blog.close()


async def test_an_article_becomes_a_draft_with_its_images_terms_and_seo(journey: Journey) -> None:
    _, post = await journey.get_post(await journey.write("explicar o café"))
    assert (post["status"], post["title"]) == ("draft", "Café e cafeína: o que dizem as fontes")
    assert post["categories"] == ["Bebidas"]
    assert post["excerpt"]
    assert "café" in post["tags"]  # type: ignore[operator]
    assert post["thumbnail"]
    assert "<figure" in str(post["content"])
    assert "<h2>Quanta cafeína tem o café</h2>" in str(post["content"])
    meta: dict[str, str] = post["meta"]  # type: ignore[assignment]
    assert meta["_yoast_wpseo_focuskw"] == meta["rank_math_focus_keyword"] == "café e cafeína"


async def test_each_rerun_updates_the_same_post(journey: Journey) -> None:
    run = await journey.write("explicar o café outra vez")
    post_id, first = await journey.get_post(run)
    for group, changed in (("seo", "title"), ("body", "content"), ("images", "thumbnail")):
        await journey.rerun(run, group)
        again, second = await journey.get_post(run)
        assert again == post_id
        assert second[changed] != first[changed], group
        assert second["status"] == "draft"
        first = second
    assert await journey.count_posts("explicar o café outra vez") == 1


async def test_a_person_decides_about_a_post_that_was_edited(journey: Journey) -> None:
    run = await journey.write("explicar o café editado")
    post_id, _ = await journey.get_post(run)
    await asyncio.to_thread(edit_post, journey.server, post_id, post_title="O meu título")
    await journey.rerun(run, "body")
    review = await get_open_review(journey.sandbox.client, run)
    assert review is not None
    assert (review.step, review.planned) == ("published_wp", False)
    _, kept = await asyncio.to_thread(lambda: (0, read_post(journey.server, post_id)))
    assert kept["title"] == "O meu título"
    decision = Decision("send_back", by="ana", notes="sobrescrever")
    await journey.sandbox.client.reviews.decide(review.id, decision)
    await journey.sandbox.work()
    assert (await journey.get_post(run))[1]["title"] == "Café e cafeína: o que dizem as fontes"


async def test_the_draft_of_a_rejected_article_is_marked_and_stays_a_draft(journey: Journey) -> None:
    run = await journey.write("explicar o café rejeitado")
    post_id, _ = await journey.get_post(run)
    await asyncio.to_thread(edit_post, journey.server, post_id, post_title="Editado")
    await journey.rerun(run, "body")
    review = await get_open_review(journey.sandbox.client, run)
    assert review is not None
    await decide_article(journey.sandbox.client, review, "reject", by="ana", notes="não serve")
    await journey.sandbox.work()
    post = await asyncio.to_thread(read_post, journey.server, post_id)
    assert post["status"] == "draft"
    assert "ana: não serve" in post["meta"].values()
