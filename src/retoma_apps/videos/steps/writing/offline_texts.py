"""What the offline writer says, by language: openings, general passages for any topic, endings, and facts.

The texts are in `offline/<language>.toml`. `TOPIC` is replaced with the topic. Every passage is a separate scene with
its own picture.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_args

from retoma_apps.videos.models import FrozenModel, Language, Scene

TOPIC = "TÓPICO"
_FOLDER = Path(__file__).parent / "offline"


class FactSheet(FrozenModel):
    """`keywords` are folded words, any of which selects the sheet; `facts` are texts with their pictures."""

    keywords: tuple[str, ...]
    source: str
    url: str
    facts: tuple[Scene, ...]


class ScriptTexts(FrozenModel):
    """`leads` introduce facts; `passages` are in the order of their use; `source_suffix` follows a source's name."""

    title: str
    opening: Scene
    leads: tuple[str, ...]
    passages: tuple[Scene, ...]
    closing: Scene
    closing_without_sources: Scene
    summary: str
    sources: str
    offline: str
    tags: tuple[str, ...]
    hooks: tuple[str, ...]
    source_suffix: str
    fact_sheets: tuple[FactSheet, ...]


def _load(language: Language) -> ScriptTexts:
    return ScriptTexts.model_validate(tomllib.loads((_FOLDER / f"{language}.toml").read_text("utf-8")))


SCRIPT_TEXTS: dict[Language, ScriptTexts] = {language: _load(language) for language in get_args(Language)}
