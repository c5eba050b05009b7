"""The application as `retoma serve retoma_apps.classifier` creates it from the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from retoma_apps.classifier.application import from_environment
from retoma_apps.providers.chains import get_first_provider


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setenv("RETOMA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_the_app_works_offline_without_a_key_and_online_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_first_provider(from_environment().resources["labeller"].default).is_offline
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-key")
    assert not get_first_provider(from_environment().resources["labeller"].default).is_offline


def test_fallback_models_form_a_chain_behind_the_model_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-key")
    monkeypatch.setenv("CLASSIFIER_FALLBACK_MODELS", "acme/second, acme/third")
    chain = from_environment().resources["labeller"].default
    assert chain.names == ("openrouter-project", "openrouter-acme-second", "openrouter-acme-third")


def test_eight_documents_are_labelled_concurrently() -> None:
    (pipeline,) = from_environment().pipelines.values()
    assert [(pool.name, pool.capacity) for pool in pipeline.pools] == [("llm", 8)]


def test_child_processes_that_read_documents_do_not_import_the_server() -> None:
    code = "import sys, retoma_apps.classifier.pipeline; print({'fastapi', 'sklearn'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"
