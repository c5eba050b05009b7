"""Without WordPress, drafts are files in a folder, and a key still is one article."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from retoma import GiveUp
from retoma_apps.providers.wordpress import Article, Image, LocalBlog, Publication, Published

IMAGE = Image("cup:1", "inline", "cup.png", "image/png", b"png", "Uma <xícara>")
ARTICLE = Article("Chá & café", f"<p>Texto.</p>{IMAGE.placeholder}", images=(IMAGE,))
PUBLICATION = Publication("ab" * 32, "job-1", 1, ARTICLE)


@pytest.fixture
def blog(tmp_path: Path) -> LocalBlog:
    return LocalBlog(tmp_path / "blog")


def read_draft(published: Published) -> tuple[str, list[bytes]]:
    page = Path(urlsplit(published.edit_url).path)
    return page.read_text(), [each.read_bytes() for each in page.parent.glob("*.png")]


async def test_a_draft_is_a_page_with_its_images(blog: LocalBlog) -> None:
    published = await blog.publish(PUBLICATION)
    text, pictures = read_draft(published)
    assert "<h1>Chá &amp; café</h1>" in text
    assert 'alt="Uma &lt;xícara&gt;"' in text
    assert "autowriter:image" not in text
    assert pictures == [b"png"]
    assert (published.status, published.revision, published.is_replay) == ("done", 1, False)


async def test_the_same_publication_again_is_a_replay(blog: LocalBlog) -> None:
    found = await asyncio.gather(*(blog.publish(PUBLICATION) for _ in range(10)))
    assert sorted(each.is_replay for each in found) == [False] + [True] * 9
    assert len({each.post_id for each in found}) == 1


async def test_a_newer_revision_updates_the_same_draft(blog: LocalBlog) -> None:
    first = await blog.publish(PUBLICATION)
    second = await blog.publish(replace(PUBLICATION, revision=2, article=replace(ARTICLE, title="Dois")))
    assert (second.post_id, second.revision) == (first.post_id, 2)
    assert "Dois" in read_draft(second)[0]


@pytest.mark.parametrize(
    ("changes", "code"), [({"revision": 1}, "STALE_REVISION"), ({"revision": 2}, "IDEMPOTENCY_DUPLICATE")]
)
async def test_an_older_revision_and_another_text_are_refused(
    blog: LocalBlog, changes: dict[str, int], code: str
) -> None:
    await blog.publish(replace(PUBLICATION, revision=2))
    with pytest.raises(GiveUp) as raised:
        await blog.publish(replace(PUBLICATION, article=replace(ARTICLE, title="Outro"), revision=changes["revision"]))
    assert raised.value.code == code


async def test_another_image_is_another_text(blog: LocalBlog) -> None:
    await blog.publish(PUBLICATION)
    changed = replace(ARTICLE, images=(replace(IMAGE, content=b"other"),))
    with pytest.raises(GiveUp):
        await blog.publish(replace(PUBLICATION, article=changed))


async def test_a_rejected_draft_has_its_note(blog: LocalBlog) -> None:
    assert await blog.get_job(PUBLICATION.idempotency_key) is None
    assert await blog.mark(PUBLICATION.idempotency_key, "x") is None
    await blog.publish(PUBLICATION)
    marked = await blog.mark(PUBLICATION.idempotency_key, "Fora do tema")
    assert marked is not None
    assert (marked.note, marked.post_status) == ("Fora do tema", "draft")
    assert await blog.get_job(PUBLICATION.idempotency_key) == marked


async def test_the_folder_says_that_it_is_offline(blog: LocalBlog) -> None:
    assert (blog.is_offline, (await blog.ping()).plugin_version) == (True, "offline")
