"""Tests run without the developer's accounts, and the demo in any locale."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

import retoma
import retoma_apps
from retoma_apps.providers.gpu.runpod import RunPodSettings
from tests import environment


def concrete_subclasses(base: type[BaseSettings]) -> Iterator[type[BaseSettings]]:
    """Settings that others extend have no variables of their own."""
    for settings in base.__subclasses__():
        yield from concrete_subclasses(settings) if settings.__subclasses__() else [settings]


def variables() -> Iterator[str]:
    """All that the settings of this project are read from."""
    for package in (retoma, retoma_apps):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    for settings in concrete_subclasses(BaseSettings):
        for name, field in settings.model_fields.items():
            alias = field.validation_alias
            aliases = (
                alias.choices if isinstance(alias, AliasChoices) else [f"{settings.model_config['env_prefix']}{name}"]
            )
            yield from map(str, aliases)


def test_no_variable_of_our_settings_reaches_a_test() -> None:
    body = {name.upper(): "x" for name in variables()}
    assert len(body) > 50
    assert environment.without_project_variables(body) == {}
    assert environment.without_project_variables({"PATH": "/bin", "RETOMA_TEST_DATABASE_URL": "x"}).keys() > {"PATH"}


def test_the_project_s_env_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RUNPOD_API_KEY=rpa_real\n")
    monkeypatch.chdir(tmp_path)
    assert RunPodSettings().api_key.get_secret_value() == "rpa_real"
    monkeypatch.setattr(environment, "PROJECT", tmp_path)
    assert RunPodSettings().api_key.get_secret_value() == ""


def test_an_account_of_this_machine_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_real")
    environment.clear_project_variables()
    assert "RUNPOD_API_KEY" not in os.environ
    assert "PATH" in os.environ


def test_the_demo_is_read_as_utf_8_in_any_locale() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", "import retoma.demo"], env={**os.environ, **ascii_only}, check=True)
