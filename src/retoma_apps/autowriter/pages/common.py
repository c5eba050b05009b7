"""Values that all templates of AutoWriter use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from retoma.server import PageContext
from retoma_apps.autowriter.pages import messages
from retoma_apps.autowriter.pages.badges import STATE_BADGES
from retoma_apps.autowriter.pages.offline import CONNECTED, list_offline_variables
from retoma_apps.autowriter.steps.writing.offline import list_themes
from retoma_apps.providers.chains import get_first_provider
from retoma_apps.providers.llm import LanguageModel

HOME = "/articles/"


async def get_common_values(context: PageContext) -> dict[str, Any]:
    def name_from(names: Mapping[str, Any]) -> Any:
        return lambda name: context.translate(names[name]) if name in names else name

    notice = context.query.get("notice", "")
    shared = {name: await context.client.get_resource(name) for name in CONNECTED}
    return {
        "article_state_name": name_from(messages.STATE_NAMES),
        "field_label": name_from(messages.FIELD_LABELS),
        "field_hint": name_from(messages.FIELD_HINTS),
        "language_name": name_from(messages.LANGUAGE_NAMES),
        "form_languages": [(code, context.translate(name)) for code, name in messages.LANGUAGE_NAMES.items()],
        "article_badges": STATE_BADGES,
        "offline": {
            context.translate(messages.OFFLINE_SENTENCES[name]): variables
            for name, variables in list_offline_variables(shared).items()
        },
        "now": await context.client.now(),
        # The address names it, and anyone can write an address.
        "own_notice": context.translate(messages.NOTICES[notice]) if notice in messages.NOTICES else None,
    }


async def get_model(context: PageContext, blog_id: str | None = None) -> LanguageModel:
    """Return the first model of a blog; without one, that of blogs without connections of their own."""
    model: LanguageModel = get_first_provider(await context.client.get_resource("llm", tenant=blog_id))
    return model


async def list_writable_themes(context: PageContext) -> list[tuple[str, str]]:
    """Return the only themes that can be written, with their languages; none if a language model writes any theme."""
    return list_themes() if (await get_model(context)).provider.is_offline else []


def build_article_url(run: UUID) -> str:
    return f"{HOME}{run}"


def get_safe_link(url: str) -> str | None:
    """Return an address of the web, else None: WordPress and language models are not trusted."""
    return url if url.startswith(("https://", "http://")) else None
