"""Common to all stand-ins."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

PROJECT = Path(__file__).parents[3]
PROVIDERS = ("footage", "gpu", "images", "keywords", "llm", "speech", "youtube")


def test_every_stand_in_has_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    monkeypatch.setattr(sys, "argv", ["standin"])
    for provider in PROVIDERS:
        command = import_module(f"standins.{provider}.__main__")
        monkeypatch.setattr(command, "run", lambda _, port, __: ports.append(port))
        command.main()
    assert len(set(ports)) == len(PROVIDERS)


def test_the_wheel_contains_no_stand_in() -> None:
    shipped = [each.distribution_path for each in WheelBuilder(str(PROJECT)).recurse_included_files()]
    assert {path.split("/")[0] for path in shipped} == {"retoma", "retoma_apps"}
    assert not [path for path in shipped if "standin" in path]


def test_the_wheel_contains_the_texts_of_the_offline_writers() -> None:
    shipped = {each.distribution_path for each in WheelBuilder(str(PROJECT)).recurse_included_files()}
    texts = {str(path.relative_to(PROJECT / "src")) for path in (PROJECT / "src" / "retoma_apps").rglob("*.toml")}
    assert len(texts) > 5
    assert texts <= shipped
