"""The address and the secret of a site come from variables or a file, and no site uses the secret of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from retoma import GiveUp
from retoma.errors import ProviderRejected
from retoma_apps.providers.wordpress import Credentials, WordPressSettings

OLD, NEW = "aw_old.CANARY-OLD-0123456789", "aw_new.CANARY-NEW-0123456789"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_secret_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDPRESS_BASE_URL", "https://blog.example")
    monkeypatch.setenv("WORDPRESS_SECRET", OLD)
    settings = WordPressSettings()
    assert settings.is_configured
    assert settings.list_credentials() == [Credentials("aw_old", "CANARY-OLD-0123456789")]


def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{NEW}\n")
    monkeypatch.setenv("WORDPRESS_BASE_URL", "https://blog.example")
    monkeypatch.setenv("WORDPRESS_SECRET_FILE", str(tmp_path / "secret"))
    settings = WordPressSettings()
    assert settings.is_configured
    assert [each.key_id for each in settings.list_credentials()] == ["aw_new"]


def test_each_site_has_its_own_address_and_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(NEW)
    monkeypatch.setenv("WORDPRESS_SECRET", OLD)
    monkeypatch.setenv("WORDPRESS_BASE_URL_RECEITAS_DA_VO", "https://receitas.example")
    monkeypatch.setenv("WORDPRESS_SECRET_RECEITAS_DA_VO_FILE", str(tmp_path / "secret"))
    settings = WordPressSettings.for_site("Receitas da Vó")
    assert settings.base_url == "https://receitas.example"
    assert [each.key_id for each in settings.list_credentials()] == ["aw_new"]


def test_a_site_without_a_secret_does_not_use_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDPRESS_SECRET", OLD)
    with pytest.raises(ProviderRejected, match="set WORDPRESS_SECRET_VIAGENS or WORDPRESS_SECRET_VIAGENS_FILE"):
        WordPressSettings.for_site("viagens").list_credentials()


def test_two_secrets_are_read_while_one_replaces_the_other() -> None:
    settings = WordPressSettings(secret=SecretStr(f"{NEW}, {OLD}"))
    assert [each.key_id for each in settings.list_credentials()] == ["aw_new", "aw_old"]


@pytest.mark.parametrize("text", ["CANARY-WITHOUT-DOT", ".CANARY", "aw_x.", "aw_x.CANÁRY"])
def test_a_secret_of_another_form_is_reported_and_not_shown(text: str) -> None:
    with pytest.raises(ProviderRejected, match="copy all of it") as raised:
        WordPressSettings(secret=SecretStr(text)).list_credentials()
    assert "CAN" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProviderRejected, match="WORDPRESS_SECRET_FILE cannot be read: FileNotFoundError"):
        WordPressSettings(secret_file=tmp_path / "none").list_credentials()


def test_a_site_whose_name_is_not_latin_is_rejected() -> None:
    with pytest.raises(GiveUp, match="Latin"):
        WordPressSettings.for_site("博客")


def test_secrets_are_not_in_representations() -> None:
    settings = WordPressSettings(secret=SecretStr(OLD))
    assert "CANARY" not in f"{settings!r} {settings.list_credentials()!r}"
