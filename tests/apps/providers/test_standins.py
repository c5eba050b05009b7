"""Common to all stand-ins."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

PROVIDERS = ("footage", "gpu", "images", "llm", "speech", "youtube")


def test_every_stand_in_has_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []
    monkeypatch.setattr(sys, "argv", ["standin"])
    for provider in PROVIDERS:
        command = import_module(f"retoma_apps.providers.{provider}.standin.__main__")
        monkeypatch.setattr(command, "run", lambda _, port: ports.append(port))
        command.main()
    assert len(set(ports)) == len(PROVIDERS)
