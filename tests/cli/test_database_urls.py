"""No form of address, however wrong, shows its password."""

from __future__ import annotations

import pytest

from retoma.cli.database_urls import mask_password
from retoma.store.database import Database

WRONG = [
    "host=127.0.0.1 password=s3cr3t user=u",
    "u:s3cr3t@127.0.0.1/db",
    "postgresql://u:s3/cr3t@h:5432/db",
    "postgresql://u:s3#cr3t@h:5432/db",
    "postgresql://u:s3?cr3t@h:5432/db",
    "postgresql://u:s3cr3t@h:abc/db",
    "postgresql://u:s3cr3t@h:99999/db",
    "postgresql://u:s3[cr3t@h/db",
    "postgresql://u:s3cr3t@[::1/db",
]


@pytest.mark.parametrize("url", [*WRONG, "postgresql://u:s3cr3t@h/db", "postgresql://h/db?password=s3cr3t"])
def test_a_database_url_never_shows_its_password(url: str) -> None:
    for shown in (mask_password(url), Database(url, None).address):
        assert "cr3t" not in shown
        assert "s3" not in shown


def test_a_valid_url_names_its_host() -> None:
    assert Database("postgresql://u:p@db.example:6432/work", None).address == "db.example:6432/work"
    assert mask_password("postgresql://u:p@db.example:6432/work") == "postgresql://u:***@db.example:6432/work"
