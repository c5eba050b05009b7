"""Which texts count as secrets, and how they are masked in messages and logs."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from retoma import logs
from retoma.masking import hide_folders, is_secret_name, mask_secrets, register_home
from retoma.settings import Settings

PEM = "-----BEGIN PRIVATE KEY-----\nMIIcanaryLINEone0001\nMIIcanaryLINEtwo0002\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "name",
    [
        *("OPENROUTER_API_KEY", "WEBHOOK_SECRET", "SLACK_TOKEN", "PGPASSWORD", "aws_secret_access_key", "apikey"),
        *("SMTP_PASS", "SENTRY_DSN", "GOOGLE_CREDENTIALS", "GITHUB_PAT", "API_KEY_2", "TOKEN2", "DB_PASSWORD_PROD"),
        *("AWS_ACCESS_KEY_ID", "SECRET_KEY_BASE", "MYSQL_PWD", "ADMIN_PASSWORD_HASH", "KEY_PASSPHRASE"),
    ],
)
def test_a_name_says_that_its_value_is_a_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "canary-0001")
    assert mask_secrets("refused: canary-0001!") == f"refused: [{name}]!"


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "OLDPWD", "COMPASS", "KEYBOARD", "MAX_TOKENS", "SSH_KEY_FILE", "TOKEN_TTL", "DISPATCH"]
)
def test_other_names_are_not_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("secret", ["lowercase", "changeme", "12345678", "Can@ry78", "ção-ção-"])
def test_eight_characters_are_enough(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", secret)
    assert mask_secrets(f"postgresql://app:{secret}@db/app") == "postgresql://app:[DB_PASSWORD]@db/app"
    assert mask_secrets(f"{secret}\n{secret}") == "[DB_PASSWORD]\n[DB_PASSWORD]"


def test_seven_characters_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "Can@ry7")
    assert mask_secrets("Can@ry7") == "Can@ry7"


def test_a_short_word_is_masked_only_as_a_whole_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "postgres")
    assert mask_secrets("postgresql cannot be reached") == "postgresql cannot be reached"
    for before in ("", ":", "7", "_", "%3A", "%3a", "\\n", "\\u00e9"):
        assert mask_secrets(f"{before}postgres") == f"{before}[DB_PASSWORD]"


def test_a_secret_is_found_as_programs_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "can ary/+\"'\\ção\t%"
    monkeypatch.setenv("API_KEY", secret)
    written = [
        *(secret, repr(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)),
        *(quote(secret), quote(secret, safe=""), urlencode({"key": secret}), quote(secret, safe="").lower()),
    ]
    assert "ary" not in "".join(map(mask_secrets, written))


@pytest.mark.parametrize("newline", ["\n", "\\n", "\r\n"])
def test_each_line_of_a_secret_is_one(newline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNING_KEY", PEM.replace("\n", newline))
    indented = "\n    ".join(PEM.splitlines())
    assert mask_secrets(PEM.replace("\n", newline)) == "[SIGNING_KEY]"
    assert "canary" not in mask_secrets(indented)
    assert "canary" not in mask_secrets(f"only the last: {PEM.splitlines()[2]}")
    assert mask_secrets("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_secrets_within_a_document_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"type": "service_account", "installed": {"client_secret": "canary-0001"}, "private_key": PEM}
    monkeypatch.setenv("GOOGLE_CREDENTIALS", json.dumps(document))
    assert mask_secrets("refused canary-0001") == "refused [GOOGLE_CREDENTIALS]"
    assert "canary" not in mask_secrets(PEM)
    assert mask_secrets("service_account") == "service_account"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("DATABASE_URL", "postgresql://app:canary%2F0001@db/app"),
        ("REDIS_URL", "redis://:canary%2F0001@cache/0"),
        ("REPORTS", "https://canary%2F0001@reports.example/1"),
        ("SENTRY_DSN", "https://canary%2F0001@sentry.example/1"),
    ],
)
def test_the_password_of_any_url_is_a_secret(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, url)
    assert "0001" not in mask_secrets(f"{url} canary/0001 canary%2F0001")
    assert "[" + name + "]" in mask_secrets("canary/0001")


def test_a_user_of_a_database_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres@db/app")
    monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://postgres:postgres@db/app")
    assert mask_secrets('no role "postgres"') == 'no role "postgres"'


def test_a_variable_set_later_is_masked_and_one_removed_still_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mask_secrets("canary-late-0001") == "canary-late-0001"
    monkeypatch.setenv("LATE_TOKEN", "canary-late-0001")
    assert mask_secrets("canary-late-0001") == "[LATE_TOKEN]"
    monkeypatch.delenv("LATE_TOKEN")
    assert mask_secrets("canary-late-0001") == "[LATE_TOKEN]"


def test_an_env_file_that_changes_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert mask_secrets("canary-file-0001") == "canary-file-0001"
    (tmp_path / ".env").write_text("STRIPE_KEY=canary-file-0001\n")
    assert mask_secrets("canary-file-0001") == "[STRIPE_KEY]"


def test_secrets_of_the_settings_file_are_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retoma.toml").write_text(
        'database_url = "postgresql://app:canary-toml-0001@db/app"\noidc_client_secret = "canary-toml-0002"\n'
    )
    Settings()
    assert mask_secrets("canary-toml-0001 canary-toml-0002") == "[RETOMA_DATABASE_URL] [RETOMA_OIDC_CLIENT_SECRET]"


def test_a_client_secret_read_from_its_file_is_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "client-secret").write_text("canary-client-0001\n")
    monkeypatch.setenv("RETOMA_OIDC_CLIENT_SECRET_FILE", str(tmp_path / "client-secret"))
    assert Settings().read_oidc_client_secret() == "canary-client-0001"
    assert mask_secrets("refused canary-client-0001") == "refused [client-secret]"


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_of_a_key_shows_in_a_logged_stack(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNING_KEY", PEM)
    monkeypatch.setenv("QUOTED_TOKEN", "can\"ary'0003\\x")
    monkeypatch.setenv("PIN_SECRET", "1234567890")
    handlers: list[logging.Handler] = []
    monkeypatch.setenv("RETOMA_LOG", form)
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.extend(given["handlers"]))
    logs.configure_logging()
    error = ValueError(PEM, {"token": os.environ["QUOTED_TOKEN"]})
    record = logging.LogRecord("step", 40, "", 1, "refused", None, (ValueError, error, None))
    record.__dict__ |= {"key": PEM, "all": [os.environ["QUOTED_TOKEN"]], "pin": 1234567890}
    line = handlers[0].format(record)
    assert not [part for part in ("canary", "ary'", "0003", "1234567890") if part in line]


def test_a_stack_names_files_as_python_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/srv/shop", "/home/ana/venv/lib/python3.11/site-packages", "/"])
    stack = (
        'File "/srv/shop/orders/pay.py", line 3\n'
        '  |   File "/home/ana/venv/lib/python3.11/site-packages/httpx/_client.py", line 9, in send\n'
        'File "/home/ana/film.py", line 1\nFile "<string>", line 1\n'
    )
    assert hide_folders(stack) == (
        'File "orders/pay.py", line 3\n'
        '  |   File "httpx/_client.py", line 9, in send\n'
        'File "film.py", line 1\nFile "<string>", line 1\n'
    )


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("No such file: '/srv/kept/files/a/b'", "No such file: '[RETOMA_HOME]/files/a/b'"),
        ("cannot list /srv/kept", "cannot list [RETOMA_HOME]"),
        ("file:///srv/kept/files/a is gone", "file://[RETOMA_HOME]/files/a is gone"),
        ("open('/srv/shop/orders/prices.csv')", "open('orders/prices.csv')"),
        ("/home/ana/.netrc is broken", "~/.netrc is broken"),
        ("not in /srv/shop", "not in shop"),
        ("/srv/shopping/list stays, as does /data/srv/shop/a", "/srv/shopping/list stays, as does /data/srv/shop/a"),
        ("GET https://example.com/srv/shop/1 failed", "GET https://example.com/srv/shop/1 failed"),
    ],
)
def test_a_message_reveals_no_server_folder(message: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/srv/shop", "/"])
    monkeypatch.setenv("HOME", "/home/ana")
    register_home(Path("/srv/kept"))
    assert hide_folders(message) == shown
