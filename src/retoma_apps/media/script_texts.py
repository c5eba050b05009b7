"""Texts around a script, by language, from `script_texts.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import TypeAdapter

from retoma_apps.media.models import FrozenModel, Language


class ScriptTexts(FrozenModel):
    """`hooks` are words for thumbnails, `bundled` says where a bundled script comes from, `sources` heads a list."""

    hooks: tuple[str, ...]
    bundled: str
    sources: str


SCRIPT_TEXTS = TypeAdapter(dict[Language, ScriptTexts]).validate_python(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
)
