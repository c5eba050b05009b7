"""AutoWriter in a sandbox: offline, with providers whose failures a test can arrange."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma.files import FileSettings, create_file_store
from retoma.records import Review, Run
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma_apps.autowriter.application import make_app
from retoma_apps.autowriter.models import ArticleRequest, Blog
from retoma_apps.autowriter.pipeline import article
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.writing.offline import MODEL, OfflineWriter
from retoma_apps.providers.keywords import OfflineKeywords, Suggestions
from retoma_apps.providers.llm import LanguageModel, Message, Reply, Usage
from retoma_apps.providers.wordpress import (
    Event,
    JobStatus,
    LocalBlog,
    MissingImage,
    PostLink,
    Publication,
    Published,
)
from tests.apps.autowriter.samples import make_request
from tests.server.api import Api, an_api

BLOG = Blog(name="Saúde", categories=["Alimentação"])
COST = 1_500


class Writer:
    """The offline writer, which costs something here. `errors` are raised by the next calls; `changes` replace fields
    of its answers by the name of their model."""

    name = "writer"
    is_offline = False

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.changes: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.cost: int | None = COST

    async def ask(
        self, messages: Sequence[Message], *, model: str, schema: type[BaseModel] | None = None, max_tokens: int
    ) -> Reply:
        assert schema is not None
        self.calls.append(schema.__name__)
        if self.errors:
            raise self.errors.pop(0)
        reply = await OfflineWriter().ask(messages, model=model, schema=schema, max_tokens=max_tokens)
        answer = {**reply.json, **self.changes.get(schema.__name__, {})}
        return Reply("", answer, Usage(100, 50, self.cost), model, "", "stop")


class Pictures:
    """Draws nothing, but says what it was asked for. `errors` are raised by the next calls for a prompt with a word."""

    model = "tiny"
    is_offline = False
    follows_notes = True

    def __init__(self, name: str = "pictures") -> None:
        self.name = name
        self.prompts: list[str] = []
        self.errors: dict[str, list[Exception]] = {}

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        self.prompts.append(prompt)
        for word, errors in self.errors.items():
            if word in prompt and errors:
                raise errors.pop(0)
        return f"picture {len(self.prompts)}".encode()


class Keywords(OfflineKeywords):
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    async def suggest(self, seed: str, *, language: str, limit: int) -> Suggestions:
        if self.errors:
            raise self.errors.pop(0)
        return await super().suggest(seed, language=language, limit=limit)


class FaultyBlog(LocalBlog):
    """A folder whose failures a test arranges. `errors` are raised by the next publications, those in `lost` after the
    draft was stored. `drafts` are the stored ones, by key, and `missing` the images that cannot be stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.errors: list[Exception] = []
        self.lost: list[Exception] = []
        self.sent: list[Publication] = []
        self.drafts: dict[str, tuple[Publication, Published]] = {}
        self.missing: tuple[MissingImage, ...] = ()
        self.posts: list[PostLink] = []
        self.events: list[Event] = []

    async def publish(self, publication: Publication) -> Published:
        self.sent.append(publication)
        if self.errors:
            raise self.errors.pop(0)
        published = replace(await super().publish(publication), warnings=self.missing)
        self.drafts[publication.idempotency_key] = publication, published
        if self.lost:
            raise self.lost.pop(0)
        return published

    async def list_posts(self, blog_id: int | None = None) -> list[PostLink]:
        return self.posts

    async def get_job(self, idempotency_key: str) -> JobStatus | None:
        job = await super().get_job(idempotency_key)
        return None if job is None else replace(job, events=tuple(self.events))


@dataclass
class WriterApp:
    api: Api
    writer: Writer
    pictures: Pictures
    keywords: Keywords
    blog: FaultyBlog

    @property
    def client(self) -> Any:
        return self.api.client

    async def start(self, request: ArticleRequest | None = None) -> UUID:
        request = request or make_request()
        started = await self.client.start(article, request, tenant=request.blog_id, key=request.identity)
        run: UUID = started.id
        return run

    async def work(self) -> None:
        """Do all work, also delayed work."""
        await self.api.sandbox.work()

    async def write(self, request: ArticleRequest | None = None) -> Run:
        """Start an article and work until nothing is left to do."""
        run = await self.start(request)
        await self.work()
        return await self.get_run(run)

    async def get_run(self, run: UUID) -> Run:
        found: Run = await self.client.runs.get(run)
        return found

    async def get_results(self, run: UUID) -> dict[str, Any]:
        results: dict[str, Any] = await self.client.runs.get_results(run)
        return results

    async def get_review(self, run: UUID) -> Review:
        (review,) = await self.client.reviews.list(run=run)
        found: Review = review
        return found

    async def decide(self, run: UUID, action: str, **values: Any) -> None:
        """Decide the open review of a run at once, and work until nothing is left to do."""
        review = await self.get_review(run)
        await self.client.reviews.decide(review.id, Decision(action, by="ana", **values))
        await self.work()

    async def list_drafts(self, blog: str = "saude") -> list[dict[str, Any]]:
        """Return the drafts of a blog as WordPress has them."""
        return [await self._describe_draft(key) for key in self.blog.drafts if await self._get_blog(key) == blog]

    async def _describe_draft(self, key: str) -> dict[str, Any]:
        publication, published = self.blog.drafts[key]
        job = await self.blog.get_job(key)
        assert job is not None
        article = asdict(publication.article)
        return {
            "key": key,
            "job_id": job.job_id,
            "post_id": published.post_id,
            "post_status": job.post_status,
            "revision": job.revision,
            "note": job.note,
            "article": article,
        }

    async def _get_blog(self, key: str) -> str:
        publication, _ = self.blog.drafts[key]
        return (await self.get_run(UUID(publication.job_id))).tenant

    async def show(self, run: UUID) -> dict[str, Any]:
        answer = await self.api.get(f"/autowriter/jobs/{run}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def get_state(self, run: UUID) -> ArticleState:
        return ArticleState((await self.show(run))["state"])


@asynccontextmanager
async def open_writer_app(database: Database, folder: Path, **providers: Any) -> AsyncIterator[WriterApp]:
    """Open the application. `providers` replace those whose failures the result arranges."""
    writer, pictures, keywords = Writer(), Pictures(), Keywords()
    blog = FaultyBlog(folder / "wordpress")
    resources = {"llm": LanguageModel(writer, MODEL), "images": pictures, "keywords": keywords, **providers}
    app = make_app(
        **resources,
        open_blog=lambda _: blog,
        files=create_file_store(FileSettings(home=folder, public_url="https://retoma.test")),
    )
    async with an_api(database, application=app) as api:
        await api.client.tenants.set_profile("saude", BLOG.model_dump())
        yield WriterApp(api, writer, pictures, keywords, blog)
