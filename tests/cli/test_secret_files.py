"""Secrets as files, one for each variable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer

from retoma.cli.secret_files import load_secrets
from retoma.masking import mask_secrets
from tests.cli.terminal import Terminal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (made := tmp_path / "secrets").mkdir()
    monkeypatch.setenv("RETOMA_SECRETS_FOLDER", str(made))
    for name in ("PEXELS_API_KEY", "RETOMA_TELEGRAM_BOT_TOKEN"):
        monkeypatch.setenv(name, "")  # so it is removed afterwards
        monkeypatch.delenv(name)
    return made


def test_the_database_is_found_by_a_file(terminal: Terminal) -> None:
    folder = terminal.folder / "secrets"
    folder.mkdir()
    (folder / "RETOMA_DATABASE_URL").write_text(terminal.variables.pop("RETOMA_DATABASE_URL") + "\n")
    terminal.variables["RETOMA_SECRETS_FOLDER"] = str(folder)
    (listed,) = (row for row in terminal.json("config", "show") if row["setting"] == "RETOMA_DATABASE_URL")
    assert listed["from"] == "environment"
    assert terminal.json("workers") == []


def test_a_secret_of_a_file_is_masked(folder: Path) -> None:
    (folder / "PEXELS_API_KEY").write_text("a-secret-of-a-file\n")
    load_secrets()
    assert "a-secret" not in mask_secrets("the key a-secret-of-a-file was refused")


def test_the_environment_takes_precedence_over_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEXELS_API_KEY", "of the environment")
    (folder / "PEXELS_API_KEY").write_text("of the file")
    load_secrets()
    assert os.environ["PEXELS_API_KEY"] == "of the environment"


def test_files_that_are_not_named_like_a_variable_are_left_out(folder: Path) -> None:
    (folder / "..data").mkdir()
    (folder / "PEXELS_API_KEY").mkdir()
    (folder / "tls.crt").write_text("a certificate")
    before = dict(os.environ)
    load_secrets()
    assert os.environ == before


def test_a_folder_that_cannot_be_read_is_an_error(folder: Path) -> None:
    folder.rmdir()
    with pytest.raises(typer.BadParameter, match="RETOMA_SECRETS_FOLDER"):
        load_secrets()
