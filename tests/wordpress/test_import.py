"""A file of 200 articles for three blogs of a network, while workers, WordPress and connections fail."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from retoma.client import Client
from retoma.records import Scope
from retoma.testing import fresh_database
from tests.cli.terminal import Process, Terminal
from tests.ports import free_port
from tests.wordpress.cutting_proxy import CuttingProxy
from tests.wordpress.site import Sites, WordPress

ROWS = 200
SECONDS = 300
APPLICATION = "tests.wordpress.application"
REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = 2
BLOGS = {
    "casa": {"name": "Casa", "categories": ["Bebidas"]},
    "viagens": {"name": "Viagens", "site_id": 2, "categories": ["Bebidas"]},
    "receitas": {"name": "Receitas", "site": "Receitas", "categories": ["Bebidas"]},
}
"""The first two use the secret of the main site, the third its own."""
PATHS = {"casa": "/", "viagens": "/viagens/", "receitas": "/receitas/"}
THEMES = (("Café e cafeína", "pt-BR"), ("Coffee and caffeine", "en"))
READ_POSTS = """
$sql = "SELECT ID, guid, post_status FROM $wpdb->posts WHERE guid LIKE 'urn:autowriter:%'";
return $wpdb->get_results( $sql, ARRAY_A );
"""
READ_IMAGES = """
return $wpdb->get_results(
	"SELECT p.ID, p.post_parent, m.meta_value AS image_key FROM $wpdb->posts p
	LEFT JOIN $wpdb->postmeta m ON m.post_id = p.ID AND m.meta_key = '_autowriter_image_key'
	WHERE p.post_type = 'attachment'",
	ARRAY_A
);
"""
READ_JOBS = """
return $wpdb->get_results( "SELECT * FROM {$wpdb->base_prefix}autowriter_jobs", ARRAY_A );
"""


@dataclass
class Deployment:
    """A server and workers as processes of their own, and a WordPress behind a proxy that loses answers."""

    terminal: Terminal
    http: httpx2.AsyncClient
    proxy: CuttingProxy
    wordpress: WordPress
    processes: ExitStack
    web_server: ExitStack
    servers: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)

    async def start_server(self) -> None:
        port = str(self.http.base_url.port)
        server = self.processes.enter_context(self.terminal.process("serve", APPLICATION, "--port", port))
        self.servers.append(server)
        await asyncio.to_thread(server.wait_for_output, "server_ready")

    async def replace_server(self) -> None:
        await kill(self.servers.pop())
        await self.start_server()

    async def start_worker(self) -> None:
        worker = self.processes.enter_context(self.terminal.process("worker", APPLICATION))
        self.workers.append(worker)
        await asyncio.to_thread(worker.wait_for_output, "worker_ready")

    async def replace_worker(self) -> None:
        """Kill the oldest worker in the middle of its jobs, and start another one."""
        await kill(self.workers.pop(0))
        await self.start_worker()

    async def restart_wordpress(self) -> None:
        """Kill the web server in the middle of its requests, and start it again."""
        await asyncio.to_thread(self.web_server.close)
        await asyncio.to_thread(self.web_server.enter_context, self.wordpress.serve())

    async def send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.http.request(method, path, **options)
        assert answer.is_success, answer.text
        return dict(answer.json())

    async def wait_for_drafts(self, import_id: str, count: int) -> None:
        await self.wait_until(import_id, lambda shown: shown["lines"].get("succeeded", 0) >= count)

    async def wait_until(self, import_id: str, is_reached: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            while True:
                shown = await self.send("GET", f"/imports/{import_id}")
                if is_reached(shown):
                    return shown
                await asyncio.sleep(0.2)

    async def list_articles(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        before: dict[str, str] = {}
        while True:
            page = await self.send("GET", "/jobs", params={"limit": 100, **before})
            found += page["jobs"]
            if page["next"] is None:
                return found
            before = {"before": page["next"]}


async def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.wait_for_exit)


@contextmanager
def serve_network(network: WordPress, upstream: int, proxy_port: int) -> Iterator[tuple[WordPress, ExitStack]]:
    with network.borrow_copy() as copied, ExitStack() as web_server:
        served = replace(copied, port=upstream, proxy_port=proxy_port)
        web_server.enter_context(served.serve())
        yield served, web_server


@pytest.fixture
async def deployment(wordpress_sites: Sites, tmp_path: Path) -> AsyncIterator[Deployment]:
    proxy = CuttingProxy(free_port(), lambda key: key[0] in "01")
    async with AsyncExitStack() as stack:
        proxy_port = await stack.enter_async_context(proxy.serve())
        network, web_server = stack.enter_context(
            serve_network(wordpress_sites.fresh_network, proxy.upstream, proxy_port)
        )
        database = await stack.enter_async_context(fresh_database())
        client = Client(None, database)
        stack.push_async_callback(client.close)
        key = (await client.api_keys.create("import", [Scope.ADMIN])).secret
        port = free_port()
        http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/autowriter", headers={"X-API-Key": key}, timeout=60
        )
        await stack.enter_async_context(http)
        variables = {
            "RETOMA_DATABASE_URL": database.url,
            "RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "2",
            "PYTHONPATH": str(REPOSITORY),
            "WORDPRESS_BASE_URL": f"http://127.0.0.1:{proxy_port}/",
            "WORDPRESS_SECRET": network.credentials["/"],
            "WORDPRESS_BASE_URL_RECEITAS": f"http://127.0.0.1:{proxy_port}/receitas/",
            "WORDPRESS_SECRET_RECEITAS": network.credentials["/receitas/"],
        }
        processes = stack.enter_context(ExitStack())
        made = Deployment(Terminal(tmp_path, variables), http, proxy, network, processes, web_server)
        await asyncio.gather(made.start_server(), made.start_worker(), made.start_worker())
        yield made


async def test_every_row_becomes_one_draft_whatever_fails(deployment: Deployment) -> None:
    for blog_id, blog in BLOGS.items():
        await deployment.send("PUT", f"/blogs/{blog_id}", json=blog)
    sent = await deployment.send("POST", "/imports", content=make_file(), headers={"Content-Type": "text/csv"})
    import_id = sent["import_id"]

    await deployment.wait_for_drafts(import_id, 10)
    await deployment.replace_worker()
    await deployment.wait_for_drafts(import_id, 50)
    await deployment.restart_wordpress()
    await deployment.wait_for_drafts(import_id, 90)
    await asyncio.gather(deployment.replace_worker(), deployment.replace_server())
    shown = await deployment.wait_until(import_id, lambda shown: shown["end_time"])

    assert (shown["state"], shown["lines"]) == ("completed", {"succeeded": ROWS})
    assert deployment.proxy.lost
    articles = {each["idempotency_key"]: each for each in await deployment.list_articles()}
    assert len(articles) == ROWS
    jobs = {each["idempotency_key"]: each for each in deployment.wordpress.run_php(READ_JOBS)}
    assert {key: describe_job(job) for key, job in jobs.items()} == {
        key: describe_article(each) for key, each in articles.items()
    }
    for blog_id, path in PATHS.items():
        keys = [key for key, each in articles.items() if each["blog_id"] == blog_id]
        check_posts(deployment.wordpress, path, {key: int(jobs[key]["post_id"]) for key in keys})


def make_file() -> bytes:
    lines = ["blog_id,theme,objective,language,word_count"]
    for number in range(ROWS):
        blog_id = list(BLOGS)[number % len(BLOGS)]
        theme, language = THEMES[number % len(THEMES)]
        lines.append(f"{blog_id},{theme},objetivo {number},{language},400")
    return "\n".join(lines).encode()


def describe_job(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["job_id"], int(job["post_id"]), int(job["revision"]), job["status"]


def describe_article(shown: dict[str, Any]) -> tuple[Any, ...]:
    return shown["job_id"], shown["post_id"], shown["revision"], shown["state"]


def check_posts(wordpress: WordPress, path: str, expected: dict[str, int]) -> None:
    """Check that a site has one draft for each of these keys, with this id, and each image of it once."""
    posts = wordpress.run_php(READ_POSTS, path=path)
    assert {post["post_status"] for post in posts} == {"draft"}
    assert sorted((post["guid"].split(":")[2], int(post["ID"])) for post in posts) == sorted(expected.items())
    images = wordpress.run_php(READ_IMAGES, path=path)
    assert len({image["image_key"] for image in images}) == len(images) == IMAGES * len(posts)
    assert {int(image["post_parent"]) for image in images} == set(expected.values())
