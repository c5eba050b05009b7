"""Assemble the application: with OpenRouter if its key is set, otherwise with a model on this machine."""

from __future__ import annotations

from retoma import App, Settings
from retoma.files import FileSettings, FileStore, create_file_store
from retoma_apps.classifier.callback import build_callback_body
from retoma_apps.classifier.labelling import Labeller
from retoma_apps.classifier.pages.messages import LOCALE
from retoma_apps.classifier.pages.pages import STATIC, TEMPLATES, create_pages
from retoma_apps.classifier.pipeline import classification
from retoma_apps.classifier.projects import OfflineAccuracies
from retoma_apps.classifier.routes import router
from retoma_apps.classifier.schemas import ExecutionCallback
from retoma_apps.classifier.uploads import LARGEST_UPLOAD
from retoma_apps.providers.llm import Llm, OpenRouter, OpenRouterSettings


def make_app(files: FileStore, llm: Llm | None) -> App:
    accuracies = OfflineAccuracies()
    return App(
        "classificador",
        pipelines=[classification],
        resources={"labeller": Labeller(files, llm), "accuracies": accuracies},
        routes=[router],
        webhook_body=build_callback_body,
        webhook_schema=ExecutionCallback,
        pages=create_pages(accuracies, is_offline=llm is None),
        templates=TEMPLATES,
        static=STATIC,
        locale=LOCALE,
        files=files,
        large_bodies={"/arquivos": LARGEST_UPLOAD},
    )


def from_environment() -> App:
    settings, openrouter = Settings(), OpenRouterSettings()
    files = create_file_store(FileSettings(home=settings.home, public_url=settings.public_url))
    return make_app(files, OpenRouter(openrouter) if openrouter.api_key.get_secret_value() else None)
