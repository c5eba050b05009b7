"""Assemble the application: with a language model if its key is set, otherwise with a model on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from retoma import App, Settings
from retoma.checks import check_extra
from retoma.connections import TenantConnections
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.translations import N_
from retoma_apps.classifier.callback import build_callback_body
from retoma_apps.classifier.demo import run_demo
from retoma_apps.classifier.operations.projects import OfflineAccuracies
from retoma_apps.classifier.operations.uploads import LARGEST_UPLOAD
from retoma_apps.classifier.pages import execution
from retoma_apps.classifier.pages.messages import LOCALE, STEP_LABELS
from retoma_apps.classifier.pages.projects import ProjectPages
from retoma_apps.classifier.pipeline import classification
from retoma_apps.classifier.routes import router
from retoma_apps.classifier.schemas import ExecutionCallback
from retoma_apps.classifier.settings import ClassifierSettings
from retoma_apps.classifier.steps.labelling import Labeller
from retoma_apps.providers.chains import build_per_tenant, chain_providers
from retoma_apps.providers.llm import Llm, configured_providers, openrouter, split_models

PAGES_FOLDER = Path(__file__).parent / "pages"


def make_app(
    files: FileStore,
    llm: Llm | None,
    fallback_models: Sequence[str] = (),
    connect: Callable[[TenantConnections], Llm | None] | None = None,
) -> App:
    """Return the application. The fallback models replace that of a project if it fails. `connect` returns the provider
    with the connections of a tenant."""
    accuracies = OfflineAccuracies()

    def build(llm: Llm | None) -> Any:
        fallbacks = [Labeller(files, llm, model) for model in fallback_models if llm is not None]
        return chain_providers([Labeller(files, llm), *fallbacks])

    return App(
        "classificador",
        title=N_("Classifier"),
        description=N_("Reads batches of documents and gives each a label of your project."),
        pipelines=[classification],
        resources={
            "labeller": build_per_tenant(connect and (lambda found: build(connect(found))), build(llm)),
            "accuracies": accuracies,
        },
        connections=[openrouter.CONNECTION],
        routes=[router],
        webhook_body=build_callback_body,
        webhook_schema=ExecutionCallback,
        pages=[*execution.PAGES, *ProjectPages(accuracies).pages],
        templates=PAGES_FOLDER / "templates",
        static=PAGES_FOLDER / "static",
        labels=STEP_LABELS,
        locale=LOCALE,
        files=files,
        large_bodies={"/arquivos": LARGEST_UPLOAD},
        demo=partial(run_demo, files),
        checks=lambda: [check_extra("classifier")],
    )


def from_environment() -> App:
    settings = Settings()
    files = create_file_store(FileSettings(home=settings.home, public_url=settings.public_url))
    fallback_models = split_models(ClassifierSettings().fallback_models)

    def connect(connections: TenantConnections) -> Llm | None:
        return next(iter(configured_providers(connections)), None)

    return make_app(files, connect(TenantConnections()), fallback_models, connect)
