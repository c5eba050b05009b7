"""Assemble the application: with the services that have keys, otherwise with their offline implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from retoma import App, ProviderChain, Settings
from retoma.connections import TenantConnections
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.providers import SingleProvider
from retoma.translations import N_
from retoma_apps.autowriter.checks import check_environment
from retoma_apps.autowriter.demo import run_demo
from retoma_apps.autowriter.metrics import collect_metrics
from retoma_apps.autowriter.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.autowriter.pages.pages import STATIC, TEMPLATES, create_pages
from retoma_apps.autowriter.pages.reasons import list_review_reasons
from retoma_apps.autowriter.pages.reviews import REVIEW_ASIDES, REVIEW_TEMPLATES, get_review_values
from retoma_apps.autowriter.pipeline import article, article_import, article_mark
from retoma_apps.autowriter.routes import LARGE_BODIES, router, webhook_router
from retoma_apps.autowriter.services import FollowsNotes, ImportFiles
from retoma_apps.autowriter.settings import AutoWriterSettings
from retoma_apps.autowriter.steps.writing.offline import OFFLINE_MODEL
from retoma_apps.providers import images as image_providers
from retoma_apps.providers import keywords as keyword_providers
from retoma_apps.providers import wordpress
from retoma_apps.providers.chains import build_per_tenant, chain_providers, get_first_provider, prefer_services
from retoma_apps.providers.images import Images, openai
from retoma_apps.providers.keywords import KeywordProvider, dataforseo
from retoma_apps.providers.llm import LanguageModel, configured_models, openrouter
from retoma_apps.providers.wordpress import OpenBlog

CONNECTIONS = (
    openrouter.CONNECTION,
    openai.CONNECTION,
    openai.FALLBACK_CONNECTION,
    dataforseo.CONNECTION,
    wordpress.CONNECTION,
)


def make_app(
    *,
    llm: LanguageModel | SingleProvider | ProviderChain,
    images: Images | SingleProvider | ProviderChain,
    keywords: KeywordProvider | SingleProvider | ProviderChain,
    open_blog: OpenBlog,
    files: FileStore,
    connected: Mapping[str, Callable[[TenantConnections], Any]] | None = None,
) -> App:
    """Return the application. `connected` builds resources, by name, with the connections of a tenant."""
    build = dict(connected or {})
    follows_notes = _read_follows_notes(llm, images)
    return App(
        "autowriter",
        title=N_("AutoWriter"),
        description=N_("From a line of a CSV file to a draft in WordPress, for many blogs."),
        pipelines=[article, article_import, article_mark],
        resources={
            "llm": build_per_tenant(build.get("llm"), llm),
            "images": build_per_tenant(build.get("images"), images),
            "keywords": build_per_tenant(build.get("keywords"), keywords),
            "open_blog": build_per_tenant(build.get("open_blog"), open_blog),
            "import_files": ImportFiles(files),
            "follows_notes": build_per_tenant(
                (lambda found: _read_follows_notes(build["llm"](found), build["images"](found))) if build else None,
                follows_notes,
            ),
        },
        connections=CONNECTIONS,
        routes=[router, webhook_router],
        large_bodies=LARGE_BODIES,
        metrics=collect_metrics,
        pages=create_pages(),
        templates=TEMPLATES,
        static=STATIC,
        review_templates=REVIEW_TEMPLATES,
        review_asides=REVIEW_ASIDES,
        review_values=get_review_values,
        review_reasons=list_review_reasons(follows_notes),
        labels=STEP_LABELS,
        locale=LOCALE,
        files=files,
        demo=partial(run_demo, get_first_provider(llm)),
        checks=lambda: check_environment(
            get_first_provider(llm), get_first_provider(images), get_first_provider(keywords)
        ),
    )


def _read_follows_notes(
    llm: LanguageModel | SingleProvider | ProviderChain, images: Images | SingleProvider | ProviderChain
) -> FollowsNotes:
    return FollowsNotes(get_first_provider(llm).follows_notes, get_first_provider(images).follows_notes)


def from_environment() -> App:
    settings = Settings()
    folder = settings.home.absolute() / "wordpress"
    connected: dict[str, Callable[[TenantConnections], Any]] = {
        "llm": lambda found: chain_providers(_list_models(found)),
        "images": lambda found: chain_providers(prefer_services(image_providers.configured_providers(found))),
        "keywords": lambda found: chain_providers(keyword_providers.configured_providers(found)),
        "open_blog": lambda found: wordpress.configured_providers(folder, found)[0],
    }
    return make_app(
        **{name: build(TenantConnections()) for name, build in connected.items()},
        files=create_file_store(FileSettings(home=settings.home, public_url=settings.public_url)),
        connected=connected,
    )


def _list_models(connections: TenantConnections) -> list[LanguageModel]:
    """Return the configured models. Without any, the offline writer; it never replaces a model that failed."""
    settings = AutoWriterSettings()
    return configured_models(settings.model, settings.fallback_models, connections) or [OFFLINE_MODEL]
