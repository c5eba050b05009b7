"""Receive what a site sends to its dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.receiver import Receiver, receiver
from tests.wordpress.site import WordPress

LIST_DELIVERIES = """
$table = $wpdb->base_prefix . 'autowriter_events';
return $wpdb->get_results( "SELECT status, attempts, next_attempt_at, last_error FROM $table ORDER BY id", ARRAY_A );
"""


@asynccontextmanager
async def connected(site: WordPress, path: str = "/") -> AsyncIterator[Receiver]:
    """Receive what the site sends to its dashboard."""
    async with receiver() as received:
        url = f"http://127.0.0.1:{received.port}/retoma/"
        await asyncio.to_thread(site.run_php, "update_option( 'autowriter_dashboard_url', $url );", path=path, url=url)
        yield received


async def run_cron(site: WordPress, path: str = "/") -> None:
    """Run what is due, as the server's cron does."""
    answer = await asyncio.to_thread(httpx2.get, f"{site.address}{path}wp-cron.php", timeout=60)
    assert answer.status_code == 200


async def deliver(site: WordPress, seconds_later: int = 0) -> list[dict[str, Any]]:
    """Deliver what is due at that time, and return the state of all events."""
    code = f"""
    add_filter( 'autowriter_now', function ( $now ) {{ return $now + {seconds_later}; }} );
    AutoWriter\\deliver_due_events();
    {LIST_DELIVERIES}
    """
    found: list[dict[str, Any]] = await asyncio.to_thread(site.run_php, code)
    return found
