"""An application: what it brings to the server and the workers, checked when it is assembled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retoma.define.pipeline import Pipeline
from retoma.define.step import Resource, Step
from retoma.errors import DefinitionError, NotFound

if TYPE_CHECKING:
    from retoma.files import Files  # slow to import, and not every application has files

# With the client, for what `prometheus_client` calls metrics.
Measures = Callable[[Any], Awaitable[Iterable[Any]]]


class App:
    """Gathers pipelines and the resources that their steps ask for right of `*`.

    A resource is given to steps as it is; make it safe for concurrent use. `routes` are FastAPI routers that the
    server takes up. `webhook_body(client, run, event)` makes the body of a webhook in place of the usual one.
    `measures(client)` gives families of metrics that `/metrics` shows beside its own. `pages` are the dashboard's
    (`retoma.server.Page`), which `templates` holds the Jinja templates of; the scripts and stylesheets in the folder
    `static` are served under `/static/app/`, to anyone. `files` is where the files are that its runs name.
    `large_bodies` are paths of its routes that read their requests part by part, and the most bytes of each.
    """

    def __init__(
        self,
        name: str,
        *,
        pipelines: Sequence[Pipeline],
        resources: Mapping[str, Any] | None = None,
        routes: Sequence[Any] = (),
        webhook_body: Callable[..., Any] | None = None,
        measures: Measures | None = None,
        pages: Sequence[Any] = (),
        templates: Path | None = None,
        static: Path | None = None,
        files: Files | None = None,
        large_bodies: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.routes = tuple(routes)
        self.webhook_body = webhook_body
        self.measures = measures
        self.pages = tuple(pages)
        self.templates = templates
        self.static = static
        self.files = files
        self.large_bodies = dict(large_bodies or {})
        self.resources = dict(resources or {})
        self.pipelines = _by_name(name, pipelines)
        for pipeline in pipelines:
            pipeline.check()
            for step in pipeline.steps.values():
                self._check_resources(step)

    def pipeline(self, name: str) -> Pipeline:
        try:
            return self.pipelines[name]
        except KeyError:
            near = get_close_matches(name, self.pipelines, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, self.pipelines))}"
            raise NotFound(f"the application {self.name!r} has no pipeline {name!r}; {hint}") from None

    @property
    def queues(self) -> list[str]:
        """Every queue that a step of this application is on."""
        steps = (step for pipeline in self.pipelines.values() for step in pipeline.steps.values())
        return sorted({step.policy.queue for step in steps})

    def _check_resources(self, step: Step) -> None:
        for resource in step.resources:
            if resource.name != "ctx" and resource.name not in self.resources and not resource.optional:
                raise DefinitionError(self._missing(step, resource))

    def _missing(self, step: Step, resource: Resource) -> str:
        near = get_close_matches(resource.name, self.resources, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return (
            f"pipeline {step.pipeline!r}, step {step.name!r}: nothing provides the resource {resource.name!r}{hint}; "
            f"give it with App(resources={{{resource.name!r}: ...}})"
        )


def _by_name(app: str, pipelines: Sequence[Pipeline]) -> dict[str, Pipeline]:
    named: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        if pipeline.name in named:
            raise DefinitionError(f"the application {app!r} has two pipelines named {pipeline.name!r}")
        named[pipeline.name] = pipeline
    if not named:
        raise DefinitionError(f"the application {app!r} has no pipelines")
    return named
