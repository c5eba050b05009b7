"""Assemble the application: with the services that have keys, otherwise with their offline implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from retoma import App
from retoma.checks import check_extra
from retoma.connections import TenantConnections
from retoma.translations import N_
from retoma_apps.media.services import CONNECTIONS as FILM_CONNECTIONS
from retoma_apps.media.services import build_resources, read_film_services
from retoma_apps.providers import images
from retoma_apps.providers.chains import prefer_services
from retoma_apps.providers.ffmpeg import check_ffmpeg
from retoma_apps.providers.images import openai
from retoma_apps.providers.llm import configured_models, openrouter
from retoma_apps.stories.demo import run_demo
from retoma_apps.stories.pages.common import WATCH_URL
from retoma_apps.stories.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.stories.pages.pages import STATIC, TEMPLATES, create_pages
from retoma_apps.stories.pages.reviews import REVIEW_ASIDES, REVIEW_TEMPLATES, get_review_values
from retoma_apps.stories.pipeline import story
from retoma_apps.stories.routes import router
from retoma_apps.stories.services import Services
from retoma_apps.stories.settings import StorySettings
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from retoma_apps.stories.steps.writing.llm import LlmStoryWriter
from retoma_apps.stories.steps.writing.port import StoryWriter

CONNECTIONS = (openrouter.CONNECTION, *FILM_CONNECTIONS, openai.CONNECTION, openai.FALLBACK_CONNECTION)


def make_app(services: Services, build: Callable[[TenantConnections], Services] | None = None) -> App:
    """Return the application. `build` returns the services with the connections of a tenant."""
    return App(
        "stories",
        title=N_("Stories"),
        description=N_("From a topic to a narrated film with subtitles in several languages."),
        pipelines=[story],
        resources=build_resources(services, build),
        connections=CONNECTIONS,
        routes=[router],
        pages=create_pages(services),
        templates=TEMPLATES,
        static=STATIC,
        review_templates=REVIEW_TEMPLATES,
        review_asides=REVIEW_ASIDES,
        review_values=get_review_values,
        labels=STEP_LABELS,
        locale=LOCALE,
        files=services.files,
        demo=partial(run_demo, services),
        checks=lambda: [check_extra("media"), check_ffmpeg()],
    )


def from_environment() -> App:
    shared = read_film_services(WATCH_URL)

    def build(connections: TenantConnections) -> Services:
        writers = _list_writers(connections)
        pictures = prefer_services(images.configured_providers(connections))
        return Services(
            **vars(shared.for_tenant(connections, WATCH_URL)),
            writer=writers[0],
            spare_writers=writers[1:],
            images=pictures[0],
            spare_images=pictures[1:],
        )

    return make_app(build(TenantConnections()), build)


def _list_writers(connections: TenantConnections) -> list[StoryWriter]:
    """Return the configured models. Without any, the bundled topics; they never replace a model that failed."""
    settings = StorySettings()
    models = configured_models(settings.model, settings.fallback_models, connections)
    return [LlmStoryWriter(each.provider, each.model) for each in models] or [BundledStoryWriter()]
