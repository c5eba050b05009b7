"""Assemble the application: with the services that have keys, otherwise with their offline implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import App, Settings
from retoma.files import FileSettings, create_file_store
from retoma_apps.providers.footage import Footage, OfflineFootage, Pexels, PexelsSettings
from retoma_apps.providers.images import Images, OfflineImages, OpenAiImages, OpenAiImagesSettings
from retoma_apps.providers.llm import OpenRouter, OpenRouterSettings
from retoma_apps.providers.speech import Azure, AzureSettings, ElevenLabs, ElevenLabsSettings, Espeak, Speech
from retoma_apps.providers.youtube import Channel, LocalChannel, YouTube, YouTubeSettings
from retoma_apps.videos.demo import create_demo
from retoma_apps.videos.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.videos.pages.pages import REVIEW_TEMPLATES, STATIC, TEMPLATES, WATCH_URL, create_pages
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.routes import router
from retoma_apps.videos.services import Services
from retoma_apps.videos.writing.llm import LlmWriter
from retoma_apps.videos.writing.port import Writer
from retoma_apps.videos.writing.template import TemplateWriter


class VideoSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="VIDEOS_", env_file=".env", extra="ignore")

    model: str = Field("openai/gpt-5-mini", description="The OpenRouter model for research and scripts.")


def make_app(services: Services) -> App:
    return App(
        "videos",
        pipelines=[longform],
        resources={"services": services},
        routes=[router],
        pages=create_pages(services),
        templates=TEMPLATES,
        static=STATIC,
        review_templates=REVIEW_TEMPLATES,
        labels=STEP_LABELS,
        locale=LOCALE,
        files=services.files,
        demo=create_demo(services),
    )


def from_environment() -> App:
    settings = Settings()
    files = create_file_store(FileSettings(home=settings.home, public_url=settings.public_url))
    return make_app(
        Services(
            files=files,
            writer=_writer(),
            voices=_voices(),
            footage=_footage(),
            images=_images(),
            channel=_channel_factory(settings.home),
        )
    )


def _writer() -> Writer:
    settings = OpenRouterSettings()
    has_key = bool(settings.api_key.get_secret_value())
    return LlmWriter(OpenRouter(settings), VideoSettings().model) if has_key else TemplateWriter()


def _voices() -> dict[str, Speech]:
    """eSpeak has a default voice for every language, for channels without a voice."""
    azure, elevenlabs = AzureSettings(), ElevenLabsSettings()
    voices: dict[str, Speech] = {}
    if azure.key.get_secret_value():
        voices["azure"] = Azure(azure)
    if elevenlabs.api_key.get_secret_value():
        voices["elevenlabs"] = ElevenLabs(elevenlabs)
    return voices | {"espeak": Espeak()}


def _footage() -> Footage:
    settings = PexelsSettings()
    return Pexels(settings) if settings.api_key.get_secret_value() else OfflineFootage()


def _images() -> Images:
    settings = OpenAiImagesSettings()
    return OpenAiImages(settings) if settings.api_key.get_secret_value() else OfflineImages()


def _channel_factory(home: Path) -> Callable[[str], Channel]:
    """Without an OAuth client, publish to a local folder; with one, an account without a token waits instead."""
    if not YouTubeSettings().client_id:
        local = LocalChannel(home.absolute() / "channel", url=WATCH_URL)
        return lambda _: local
    return cache(lambda account: YouTube(YouTubeSettings.for_account(account)))
