"""A server that is called by a foreign host name logs once that its public URL is not set."""

from __future__ import annotations

import logging

import pytest

from tests.server.conftest import OpenApi


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if vars(record).get("event") == "public_url_needed"]


async def test_a_foreign_host_is_warned_about_once(open_api: OpenApi, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with open_api(host="retoma.example.com") as api:
        for _ in range(3):
            assert (await api.get("/readyz")).status_code == 200
    (warning,) = warnings(caplog)
    assert "retoma.example.com" in warning


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"])
async def test_this_machine_is_not_foreign(open_api: OpenApi, caplog: pytest.LogCaptureFixture, host: str) -> None:
    async with open_api(host=host) as api:
        await api.get("/readyz")
    assert warnings(caplog) == []


async def test_a_server_with_a_public_url_warns_of_nothing(open_api: OpenApi, caplog: pytest.LogCaptureFixture) -> None:
    async with open_api(host="retoma.example.com", public_url="https://retoma.example.com") as api:
        await api.get("/readyz")
    assert warnings(caplog) == []
