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
from retoma_apps.providers import footage, images
from retoma_apps.providers.chains import prefer_services
from retoma_apps.providers.ffmpeg import check_ffmpeg
from retoma_apps.providers.footage import pexels
from retoma_apps.providers.images import openai
from retoma_apps.providers.llm import configured_models, openrouter
from retoma_apps.videos.demo import run_demo
from retoma_apps.videos.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.videos.pages.pages import REVIEW_ASIDES, REVIEW_TEMPLATES, STATIC, TEMPLATES, WATCH_URL, create_pages
from retoma_apps.videos.pages.reasons import list_review_reasons
from retoma_apps.videos.pages.reviews import get_review_values
from retoma_apps.videos.pipeline import longform, video_batch
from retoma_apps.videos.routes import router
from retoma_apps.videos.services import Services
from retoma_apps.videos.settings import VideoSettings
from retoma_apps.videos.steps.writing.bundled import BundledWriter
from retoma_apps.videos.steps.writing.llm import LlmWriter
from retoma_apps.videos.steps.writing.port import Writer

CONNECTIONS = (
    openrouter.CONNECTION,
    *FILM_CONNECTIONS,
    pexels.CONNECTION,
    openai.CONNECTION,
    openai.FALLBACK_CONNECTION,
)


def make_app(services: Services, build: Callable[[TenantConnections], Services] | None = None) -> App:
    """Return the application. `build` returns the services with the connections of a tenant."""
    return App(
        "videos",
        title=N_("Videos"),
        description=N_("From a topic to a published video, with four reviews on the way."),
        pipelines=[longform, video_batch],
        resources=build_resources(services, build),
        connections=CONNECTIONS,
        routes=[router],
        pages=create_pages(services),
        templates=TEMPLATES,
        static=STATIC,
        review_templates=REVIEW_TEMPLATES,
        review_asides=REVIEW_ASIDES,
        review_values=get_review_values,
        review_reasons=list_review_reasons(services),
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
            footage=footage.configured_providers(connections)[0],
            images=pictures[0],
            spare_images=pictures[1:],
        )

    return make_app(build(TenantConnections()), build)


def _list_writers(connections: TenantConnections) -> list[Writer]:
    """Return the configured models. Without any, the bundled topics; they never replace a model that failed."""
    settings = VideoSettings()
    models = configured_models(settings.model, settings.fallback_models, connections)
    return [LlmWriter(each.provider, each.model) for each in models] or [BundledWriter()]
