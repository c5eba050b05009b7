"""What `retoma doctor` checks for this application."""

from __future__ import annotations

from collections.abc import Iterator

from retoma.checks import Finding
from retoma_apps.providers.images import Images
from retoma_apps.providers.keywords import KeywordProvider
from retoma_apps.providers.llm import LanguageModel


def check_environment(llm: LanguageModel, images: Images, keywords: KeywordProvider) -> Iterator[Finding]:
    """Report what replaces the services without a key."""
    if llm.provider.is_offline:
        yield Finding(
            "ok", "AutoWriter", "no language model: only a few bundled themes can be written", "set OPENROUTER_API_KEY"
        )
    if images.is_offline:
        yield Finding("ok", "AutoWriter", "images are shapes drawn on this machine", "set IMAGES_API_KEY")
    if keywords.is_offline:
        yield Finding(
            "ok",
            "AutoWriter",
            "keywords are the words of the theme",
            "set DATAFORSEO_LOGIN and DATAFORSEO_PASSWORD",
        )
