"""Our client and the plugin understand each other, in a real WordPress."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from retoma import GiveUp
from retoma.errors import ProviderRejected, RateLimited
from retoma_apps.providers.wordpress import (
    Article,
    Credentials,
    Image,
    PostChanged,
    Publication,
    Seo,
    WordPress,
    WordPressSettings,
    read_notification,
)
from tests.wordpress.articles import make_png, new_key
from tests.wordpress.notifications import connected, deliver
from tests.wordpress.posts import edit_post, read_post
from tests.wordpress.site import WordPress as Server


@asynccontextmanager
async def opened(server: Server, path: str = "/", **changes: object) -> AsyncIterator[WordPress]:
    values = {"base_url": f"{server.address}{path}", "secret": SecretStr(server.credentials[path])} | changes
    shift = values.pop("shift", timedelta())
    assert isinstance(shift, timedelta)
    blog = WordPress(WordPressSettings.model_validate(values), now=lambda: datetime.now(UTC) + shift)
    try:
        yield blog
    finally:
        await blog.close()


def make_publication(**changes: object) -> Publication:
    key = new_key()
    cup = Image(f"{key}:cup", "inline", "xícara.png", "image/png", make_png(), "Uma xícara")
    cover = Image(f"{key}:cover", "featured", "capa.png", "image/png", make_png(64, 48))
    article = Article(
        title="Chá & café",
        slug=f"cha-{key[:8]}",
        content=f"<p>Texto.</p>{cup.placeholder}",
        excerpt="Resumo.",
        language="pt-BR",
        categories=("Bebidas",),
        tags=("chá",),
        seo=Seo("Guia", "Sobre chá", "chá"),
        images=(cup, cover),
    )
    return replace(Publication(key, f"job-{key[:8]}", 1, article), **changes)  # type: ignore[arg-type]


async def read(server: Server, post_id: int) -> dict[str, object]:
    return await asyncio.to_thread(read_post, server, post_id)


async def test_an_article_is_published_with_everything(site: Server) -> None:
    publication = make_publication()
    async with opened(site) as blog:
        published = await blog.publish(publication)
        status = await blog.get_job(publication.idempotency_key)
    assert (published.status, published.is_replay, published.warnings) == ("done", False, ())
    assert [each.kind for each in published.events] == ["media_ok", "media_ok", "seo_applied", "done"]
    assert status is not None
    assert (status.post_id, status.post_status, status.is_edited) == (published.post_id, "draft", False)
    assert status.events == published.events
    assert abs(status.steps["post"] - datetime.now(UTC)) < timedelta(minutes=5)
    post = await read(site, published.post_id)
    assert (post["title"], post["excerpt"], post["tags"]) == ("Chá & café", "Resumo.", ["chá"])
    assert "<figure" in str(post["content"])


async def test_the_same_publication_again_is_a_replay(site: Server) -> None:
    publication = make_publication()
    async with opened(site) as blog:
        first, second = await blog.publish(publication), await blog.publish(publication)
    assert second == replace(first, is_replay=True)


async def test_an_image_that_fails_is_a_warning(site: Server) -> None:
    publication = make_publication()
    broken = replace(publication.article.images[0], content=b"no picture")
    article = replace(publication.article, images=(broken,))
    async with opened(site) as blog:
        published = await blog.publish(replace(publication, article=article))
    assert (published.status, [each.code for each in published.warnings]) == ("partial", ["MEDIA_UPLOAD_FAIL"])
    assert published.warnings[0].image == broken.key


async def test_an_edited_post_is_overwritten_only_with_force(site: Server) -> None:
    publication = make_publication()
    async with opened(site) as blog:
        post_id = (await blog.publish(publication)).post_id
        await asyncio.to_thread(edit_post, site, post_id, post_title="Meu")
        newer = replace(publication, revision=2)
        with pytest.raises(PostChanged) as raised:
            await blog.publish(newer)
        assert (raised.value.code, raised.value.edited) == ("POST_EDITED", ("title",))
        assert (await blog.publish(replace(newer, force=True))).post_id == post_id
        with pytest.raises(GiveUp, match="STALE_REVISION"):
            await blog.publish(publication)


async def test_a_rejected_draft_is_marked(site: Server) -> None:
    publication = make_publication()
    async with opened(site) as blog:
        assert await blog.get_job(publication.idempotency_key) is None
        assert await blog.mark(publication.idempotency_key, "x") is None
        await blog.publish(publication)
        marked = await blog.mark(publication.idempotency_key, "Fora do tema")
    assert marked is not None
    assert (marked.note, marked.post_status) == ("Fora do tema", "draft")


async def test_a_ping_lists_the_sites_of_a_network(network: Server) -> None:
    async with opened(network) as blog:
        info = await blog.ping()
    assert [(each.blog_id, each.name) for each in info.sites] == [(1, "Casa & Jardim"), (2, "Viagens"), (3, "Receitas")]
    async with opened(network, "/viagens/") as blog:
        assert (await blog.ping()).site_name == "Viagens"


async def test_an_article_goes_to_a_site_of_a_network(network: Server) -> None:
    async with opened(network) as blog:
        published = await blog.publish(make_publication(blog_id=3))
        with pytest.raises(GiveUp) as raised:
            await blog.publish(make_publication(blog_id=99))
    assert "/receitas/wp-admin/" in published.edit_url
    assert raised.value.code == "BLOG_SWITCH_FAIL"


async def test_a_wrong_secret_and_a_wrong_clock_stop_the_pool(site: Server) -> None:
    secret = site.credentials["/"]
    wrong = hashlib.sha256(b"wrong").hexdigest()
    for changes, code in (
        ({"secret": SecretStr(f"aw_unknown.{wrong}")}, "AUTH_FAILED"),
        ({"secret": SecretStr(f"{secret.partition('.')[0]}.{wrong}")}, "HMAC_INVALID"),
        ({"shift": timedelta(minutes=6)}, "HMAC_INVALID"),
    ):
        async with opened(site, **changes) as blog:
            with pytest.raises(ProviderRejected, match=code) as raised:
                await blog.publish(make_publication())
        assert wrong not in str(raised.value)


async def test_a_site_without_the_plugin_is_reported(own_site: Server) -> None:
    await asyncio.to_thread(own_site.run_php, "deactivate_plugins( 'autowriter/autowriter.php' );")
    async with opened(own_site) as blog:
        with pytest.raises(ProviderRejected, match="install and activate"):
            await blog.ping()


async def test_plain_permalinks_need_no_other_address(own_site: Server) -> None:
    await asyncio.to_thread(own_site.run_php, "update_option( 'permalink_structure', '' ); flush_rewrite_rules();")
    async with opened(own_site) as blog:
        assert (await blog.publish(make_publication())).status == "done"


async def test_a_rate_limit_waits(own_site: Server) -> None:
    await asyncio.to_thread(own_site.run_php, "update_option( 'autowriter_requests_per_minute', 1 );")
    async with opened(own_site) as blog:
        await blog.ping()
        with pytest.raises(RateLimited) as raised:
            await blog.ping()
    assert timedelta(0) < raised.value.delay <= timedelta(minutes=1)


async def test_notifications_of_the_plugin_are_read(own_site: Server) -> None:
    publication = make_publication()
    credentials = Credentials.parse(own_site.credentials["/"])
    async with connected(own_site) as received, opened(own_site) as blog:
        published = await blog.publish(publication)
        await deliver(own_site)
    now = datetime.now(UTC)
    found = [read_notification([credentials], each.headers, each.body, now) for each in received.requests]
    assert [(each.event_id, each.sequence, each.kind) for each in found] == [
        (each.id, each.sequence, each.kind) for each in published.events
    ]
    assert {each.idempotency_key for each in found} == {publication.idempotency_key}


LAST_POST = (
    "return wp_insert_post( array( 'post_title' => $title, 'post_status' => 'publish', 'post_type' => 'post' ) );"
)


async def test_published_posts_of_a_site_are_listed_and_drafts_are_not(site: Server) -> None:
    await asyncio.to_thread(site.run_php, LAST_POST, title="Chá & sono")
    async with opened(site) as blog:
        await blog.publish(make_publication())
        posts = await blog.list_posts()
    assert "Chá & sono" in [post.title for post in posts]
    assert "Chá & café" not in [post.title for post in posts]
    assert all(post.url.startswith(site.address) for post in posts)


async def test_posts_of_one_site_of_a_network_are_listed(network: Server) -> None:
    await asyncio.to_thread(network.run_php, LAST_POST, title="Só em viagens", path="/viagens/")
    async with opened(network) as blog:
        sites = {site.url.rstrip("/").rpartition("/")[2]: site.blog_id for site in (await blog.ping()).sites}
        assert "Só em viagens" in [post.title for post in await blog.list_posts(sites["viagens"])]
        assert "Só em viagens" not in [post.title for post in await blog.list_posts(sites["receitas"])]
        with pytest.raises(GiveUp, match="no access to site 99"):
            await blog.list_posts(99)


async def test_the_addresses_of_a_network_are_asked_for_once(own_network: Server) -> None:
    async with opened(own_network) as blog:
        for site_id in (1, 2, 3, 2):
            await blog.list_posts(site_id)
    count = 'return (int) $wpdb->get_var( "SELECT COUNT(*) FROM {$wpdb->base_prefix}autowriter_nonces" );'
    assert await asyncio.to_thread(own_network.run_php, count) == 1
