"""The page of each application lists its routes, its variables and its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import getmembers, isclass
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.routing import iter_route_contexts
from pydantic_settings import BaseSettings

from retoma import App
from retoma_apps import APPLICATIONS
from retoma_apps.autowriter.states import STEPS

PAGES = Path(__file__).parents[2] / "docs" / "applications"
ROUTE_ROW = re.compile(r"^\| (`(?:GET|HEAD|POST|PUT|PATCH|DELETE)\b.*?) \|", re.MULTILINE)
METHOD = re.compile(r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE)\b")
PATH = re.compile(r"/[^\s`?]*")
STEP_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)

each_application = pytest.mark.parametrize("name", APPLICATIONS)


@each_application
def test_the_page_of_an_application_lists_its_routes(name: str) -> None:
    app: App = import_module(f"retoma_apps.{name}").app
    served = {
        (method, normalise(context.path or ""))
        for router in app.routes
        for context in iter_route_contexts(router.routes)
        for method in context.methods or ()
    }
    assert set(list_documented_routes(name)) == served


@each_application
def test_the_page_of_an_application_lists_its_variables(name: str) -> None:
    settings = import_module(f"retoma_apps.{name}.settings")
    variables = list(list_variables(settings))
    assert variables
    text = (PAGES / f"{name}.md").read_text()
    assert [variable for variable in variables if f"`{variable}`" not in text] == []


@pytest.mark.parametrize(
    ("name", "pipeline", "heading"), [("videos", "longform", "Steps"), ("stories", "story", "Job types")]
)
def test_the_table_of_steps_names_those_of_the_pipeline(name: str, pipeline: str, heading: str) -> None:
    app: App = import_module(f"retoma_apps.{name}").app
    section = (PAGES / f"{name}.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    steps = {step.name for step in app.pipelines[pipeline].graph.steps if not step.internal}
    assert set(STEP_ROW.findall(section)) == steps


def test_the_page_of_autowriter_names_its_steps_in_order() -> None:
    text = (PAGES / "autowriter.md").read_text().partition("\n## Steps and states\n")[2]
    listed = [word for word in re.findall(r"`(\w+)`", text.partition("Each step is named")[2]) if word in STEPS]
    assert tuple(listed[: len(STEPS)]) == STEPS


def list_documented_routes(name: str) -> Iterator[tuple[str, str]]:
    """Yield method and path: a cell may have several of both."""
    for cell in ROUTE_ROW.findall((PAGES / f"{name}.md").read_text()):
        yield from product(METHOD.findall(cell), map(normalise, PATH.findall(cell)))


def normalise(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path).rstrip("/")


def list_variables(module: ModuleType) -> Iterator[str]:
    for _, kind in getmembers(module, isclass):
        if issubclass(kind, BaseSettings) and kind is not BaseSettings:
            prefix = kind.model_config.get("env_prefix", "")
            yield from (f"{prefix}{field}".upper() for field in kind.model_fields)
