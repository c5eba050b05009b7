"""An application: what the server and the workers need to run its pipelines, checked when it is created."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from retoma.checks import Finding
from retoma.define.connections import ConnectionType, check_resource, get_default
from retoma.define.definition_errors import list_keyword_options, quote_names, suggest_name
from retoma.define.pipeline import Pipeline
from retoma.define.provider_chain import ProviderChain, unwrap_provider
from retoma.define.resources import PerWorker
from retoma.define.schedule import Schedule
from retoma.define.step import Resource, Step
from retoma.errors import DefinitionError, NotFound
from retoma.records import Review

if TYPE_CHECKING:
    from retoma.files import FileStore  # slow to import, and not every application has files

# Called with the client; returns `prometheus_client` metrics.
MetricsProvider = Callable[[Any], Awaitable[Iterable[Any]]]
# Called with the client, the server's address and the language of the terminal (`pt` or `en`).
Demo = Callable[[Any, str, str], AsyncIterator[str]]
# Called with the page's context and the review; returns values for the templates of reviews.
ReviewValues = Callable[[Any, Review], Awaitable[Mapping[str, Any]]]
# Called without arguments; returns what `retoma doctor` adds to its own findings.
Checks = Callable[[], Iterable[Finding]]


class App:
    """Pipelines, and the resources that their steps take as parameters right of `*`.

    `includes` are other applications that the same server and the same workers serve. Each keeps its own resources,
    files, profiles, routes, pages and texts; `applications` lists them, and `find_owner` returns the one that defines a
    pipeline. `title` and `description` (one sentence) present an application on the home page, translated by its
    catalogue. By default the title is the name.

    `schedules` start runs of its pipelines at set times (`retoma.schedules.Schedule`).

    Steps receive a resource as it is, so it must be safe for concurrent use. Pass `PerWorker(open)` for a resource
    that must be opened and closed, `PerTenant(build)` for one that uses the connections of a tenant, and a
    `ProviderChain` for one that several providers can provide. `routes` are FastAPI routers that the server includes.

    `connections` are the services whose credentials people enter (`retoma.connections.ConnectionType`).

    `webhook_body(client, run, event)` returns the body of a webhook, given the run as it was at the event, or None to
    send the default body. `webhook_schema` is the pydantic model of that body, for the OpenAPI document.
    `metrics(client)` returns metrics that `/metrics` appends to its own.

    `pages` are pages of the dashboard (`retoma.server.Page`), with their Jinja templates in the folder `templates`.
    Scripts and stylesheets in the folder `static` are served under `/static/apps/<name>/`, without authentication;
    `static_url(file)` returns their address in a template. `files` is the store of the files that its runs refer to.
    `large_bodies` maps the paths of routes that stream their requests to the size limit of each, in bytes.

    `review_templates` maps the name of a review, or of a step that asks for help, to the template that renders its
    subject in place of the default.
    The template receives `review`, `run`, `subjects` and `previous` (`retoma.records.Subject` by step: the current
    result, and the one before the last rerun), and `file_url(file)`. Its inputs can join the form with the id
    `decision`: `<input name="items" value="3" form="decision">`.
    A field of the review's form that it renders itself (`name="value.thumbnail"`) is not shown again; `submitted` and
    `errors` hold, by such a name, the submitted text and the validation error. A template that shows in its own way
    what changed since the previous revision has an element with the attribute `data-changes`; otherwise the page lists
    the changes. `review_asides` maps the name of a review to the template that is shown beside it, with the same
    values: quality, sources, costs. `review_values(context, review)` returns further values for these templates.

    `review_reasons` maps the name of a review to the reasons that its form offers for sending work back, by the step
    that it goes back to: `{"script_review": {"script_generation": [N_("Shorter")]}}`. They are translated, and the
    selected ones become lines of the notes. `labels` maps names of steps and reviews to what the pages call them.

    `locale` is a folder of gettext catalogues, `pt_BR/LC_MESSAGES/*.po`, which translate the templates, the labels and
    the names of pages in the navigation. A string that they lack is taken from Retoma's own catalogue, or stays as it
    is.

    `demo(client, address, language)` starts the runs that `retoma dev APP --demo` shows. It yields sentences: first an
    introduction and where to look, then the progress. It is called at each start, so use an idempotency key.

    `checks()` checks the environment and the settings of the application for `retoma doctor`, and returns findings
    (`retoma.checks.Finding`).
    """

    def __init__(
        self,
        name: str,
        *,
        pipelines: Sequence[Pipeline] = (),
        includes: Sequence[App] = (),
        schedules: Sequence[Schedule] = (),
        connections: Sequence[ConnectionType] = (),
        title: str | None = None,
        description: str = "",
        resources: Mapping[str, Any] | None = None,
        routes: Sequence[Any] = (),
        webhook_body: Callable[..., Any] | None = None,
        webhook_schema: type | None = None,
        metrics: MetricsProvider | None = None,
        pages: Sequence[Any] = (),
        templates: Path | None = None,
        static: Path | None = None,
        files: FileStore | None = None,
        large_bodies: Mapping[str, int] | None = None,
        review_templates: Mapping[str, str] | None = None,
        review_asides: Mapping[str, str] | None = None,
        review_values: ReviewValues | None = None,
        review_reasons: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        labels: Mapping[str, str] | None = None,
        locale: Path | None = None,
        demo: Demo | None = None,
        checks: Checks | None = None,
        **unknown: Never,
    ) -> None:
        for option in unknown:
            raise DefinitionError(
                f"App {name!r} has no option {option!r}; {suggest_name(option, list_keyword_options(App.__init__))}"
            )
        self.name = name
        self.title = title or name
        self.description = description
        self.routes = tuple(routes)
        self.webhook_body = webhook_body
        self.webhook_schema = webhook_schema
        self.metrics = metrics
        self.pages = tuple(pages)
        self.templates = templates
        self.static = static
        self.files = files
        self.large_bodies = dict(large_bodies or {})
        self.review_templates = dict(review_templates or {})
        self.review_asides = dict(review_asides or {})
        self.review_values = review_values
        self.review_reasons = {review: dict(reasons) for review, reasons in (review_reasons or {}).items()}
        self.labels = dict(labels or {})
        self.locale = locale
        self.demo = demo
        self.checks = checks
        self.resources = dict(resources or {})
        for resource, value in self.resources.items():
            check_resource(resource, value)
        self.connections = tuple(connections)
        self.own_pipelines = _index_by_name(name, pipelines)
        self.applications = self._list_applications(includes)
        if not any(each.own_pipelines for each in self.applications):
            raise DefinitionError(f"the application {name!r} has no pipelines")
        self.connection_types = self._index_connections()
        self._owners = _index_owners(self.applications)
        self.pipelines = {pipeline: owner.own_pipelines[pipeline] for pipeline, owner in self._owners.items()}
        for pipeline in pipelines:
            pipeline.check()
            self._check_on_rejected(pipeline)
            for step in pipeline.steps.values():
                self._check_resources(step)
                self._check_chains(step)
        steps = [step for pipeline in pipelines for step in pipeline.steps.values()]
        self._check_names("review", self.review_templates, [step.name for step in steps])
        self._check_names("review", [*self.review_asides, *self.review_reasons], [step.name for step in steps])
        self._check_names("step", self.labels, [step.name for step in steps])
        self.schedules = tuple(schedules)
        self._check_schedules()

    @property
    def file_stores(self) -> tuple[FileStore, ...]:
        """The file stores of all applications, each once."""
        return tuple(dict.fromkeys(each.files for each in self.applications if each.files is not None))

    def find_owner(self, pipeline: str) -> App | None:
        """Return the application that defines the pipeline: this one or one that it includes."""
        return self._owners.get(pipeline)

    def pipeline(self, name: str) -> Pipeline:
        try:
            return self.pipelines[name]
        except KeyError:
            near = get_close_matches(name, self.pipelines, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"defined: {', '.join(map(repr, self.pipelines))}"
            raise NotFound(f"the application {self.name!r} has no pipeline {name!r}; {hint}") from None

    @property
    def queues(self) -> list[str]:
        """Return every queue that a step of this application uses."""
        steps = (step for pipeline in self.pipelines.values() for step in pipeline.steps.values())
        return sorted({step.policy.queue for step in steps})

    @property
    def provider_names(self) -> list[str]:
        """Return the names of all providers in chains, of this application and those that it includes."""
        resources = [get_default(value) for each in self.applications for value in each.resources.values()]
        return sorted({name for value in resources if isinstance(value, ProviderChain) for name in value.names})

    def _index_connections(self) -> dict[str, ConnectionType]:
        """Return the services of this application and those that it includes, by name. Several may use the same one."""
        found: dict[str, ConnectionType] = {}
        for each in dict.fromkeys((self, *self.applications)):
            for connection in each.connections:
                if found.setdefault(connection.service, connection) is not connection:
                    raise DefinitionError(
                        f"the application {self.name!r} has two connections named {connection.service!r}; rename one"
                    )
        return found

    def _list_applications(self, includes: Sequence[App]) -> tuple[App, ...]:
        """Return this application, unless it only includes others, and all included ones, each once."""
        is_own = bool(self.own_pipelines or self.routes or self.pages)
        found = [*([self] if is_own else []), *(each for included in includes for each in included.applications)]
        distinct = list(dict.fromkeys(found))
        names = [each.name for each in distinct]
        for each in distinct:
            if names.count(each.name) > 1:
                raise DefinitionError(
                    f"{self.name!r} includes two applications named {each.name!r}; rename one of them"
                )
        return tuple(distinct)

    def _check_names(self, kind: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"defined: {', '.join(map(repr, known)) or 'none'}"
                raise DefinitionError(f"the application {self.name!r} has no {kind} {name!r}; {hint}")

    def _check_schedules(self) -> None:
        names = [(each.tenant, each.name) for each in self.schedules]
        for each in self.schedules:
            each.check(self.own_pipelines)
            if names.count((each.tenant, each.name)) > 1:
                raise DefinitionError(
                    f"the application {self.name!r} has two schedules named {each.name!r} for the tenant "
                    f"{each.tenant!r}; rename one of them"
                )

    def _check_on_rejected(self, pipeline: Pipeline) -> None:
        wanted = pipeline.on_rejected
        if wanted is not None and self.own_pipelines.get(wanted.name) is not wanted:
            raise DefinitionError(
                f"pipeline {pipeline.name!r}: on_rejected= is {wanted.name!r}, which the application {self.name!r} "
                "does not define; add it to App(pipelines=[...])"
            )

    def _check_resources(self, step: Step) -> None:
        for resource in step.resources:
            if resource.name != "ctx" and resource.name not in self.resources and not resource.optional:
                raise DefinitionError(self._describe_missing_resource(step, resource))
        for name in step.feedback.resources if step.feedback else ():
            if name not in self.resources:
                raise DefinitionError(self._describe_missing_resource(step, Resource(name)))
            if isinstance(unwrap_provider(self.resources[name]), PerWorker):
                raise DefinitionError(
                    f"pipeline {step.pipeline!r}, step {step.name!r}: its feedback check runs in the server and "
                    f"cannot use the resource {name!r}, which only workers open"
                )
            if isinstance(get_default(self.resources[name]), ProviderChain):
                raise DefinitionError(
                    f"pipeline {step.pipeline!r}, step {step.name!r}: its feedback check cannot use the resource "
                    f"{name!r}: only attempts get a provider of a chain"
                )

    def _check_chains(self, step: Step) -> None:
        chains = {name: get_default(value) for name, value in self.resources.items()}
        names = [each.name for each in step.resources if isinstance(chains.get(each.name), ProviderChain)]
        if len(names) > 1:
            raise DefinitionError(
                f"pipeline {step.pipeline!r}, step {step.name!r}: it takes {len(names)} provider chains, "
                f"{quote_names(names)}; split it into steps that take one each"
            )
        pool = step.policy.pool
        if names and pool is not None and pool.name in chains[names[0]].names:
            raise DefinitionError(
                f"pipeline {step.pipeline!r}, step {step.name!r}: pool= is {pool.name!r}, a provider of the chain "
                f"{names[0]!r}: no job would start while it fails, although others are left; rename one of them"
            )

    def _describe_missing_resource(self, step: Step, resource: Resource) -> str:
        near = get_close_matches(resource.name, self.resources, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return (
            f"pipeline {step.pipeline!r}, step {step.name!r}: no resource {resource.name!r}{hint}; "
            f"provide it with App(resources={{{resource.name!r}: ...}})"
        )


def _index_by_name(app: str, pipelines: Sequence[Pipeline]) -> dict[str, Pipeline]:
    named: dict[str, Pipeline] = {}
    for pipeline in pipelines:
        if pipeline.name in named:
            raise DefinitionError(f"the application {app!r} has two pipelines named {pipeline.name!r}")
        named[pipeline.name] = pipeline
    return named


def _index_owners(applications: Sequence[App]) -> dict[str, App]:
    owners: dict[str, App] = {}
    for application in applications:
        for name in application.own_pipelines:
            if name in owners:
                raise DefinitionError(
                    f"the applications {owners[name].name!r} and {application.name!r} both define a pipeline {name!r}; "
                    "rename one of the pipelines, or serve the applications separately, each on its own database"
                )
            owners[name] = application
    return owners
