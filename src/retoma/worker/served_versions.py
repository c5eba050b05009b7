"""The versions and steps that a worker can run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from retoma.app import App
from retoma.define.graph import Graph
from retoma.define.provider_chain import ProviderChain, SingleProvider
from retoma.define.resources import PerWorker
from retoma.engine import versions
from retoma.engine.tenant_resources import TenantResources
from retoma.logs import get_logger
from retoma.store import provider_breakers
from retoma.store.database import Database
from retoma.worker.child_runs import LOCATION, ChildRuns
from retoma.worker.step_call import StepCall

log = get_logger(__name__)

VERSION_LOOKBACK = 50


class ServedVersions:
    """The known versions of the pipelines. A run keeps the graph of its version, and runs the current code."""

    def __init__(self, app: App, child_runs: ChildRuns, tenant_resources: TenantResources) -> None:
        self.child_runs = child_runs
        self.tenant_resources = tenant_resources
        self._app = app
        self._resources: dict[App, Mapping[str, Any]] = {each: each.resources for each in app.applications}
        self._graphs: dict[int, Graph] = {}
        self.get_step_call = cache(self._build_step_call)
        self.find_creating_step = cache(self._find_creating_step)

    @property
    def version_numbers(self) -> list[int]:
        """The numbers of all known versions."""
        return list(self._graphs)

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the per-worker resources, and close them when the block ends."""
        async with AsyncExitStack() as stack:
            for application in self._resources:
                self._resources[application] = {
                    name: await _open_resource(value, stack) for name, value in application.resources.items()
                }
            yield

    @property
    def pipelines(self) -> list[str]:
        return sorted(self._app.pipelines)

    @property
    def provider_names(self) -> list[str]:
        """The names of all providers in chains."""
        return self._app.provider_names

    def get_application(self, version: int) -> App:
        """Return the application that defines the pipeline of this version."""
        owner = self._app.find_owner(self._graphs[version].pipeline)
        assert owner is not None  # only versions of the application's pipelines are loaded
        return owner

    def get_resources(self, version: int) -> Mapping[str, Any]:
        """Return the resources that steps of this version may take, opened if they are per worker."""
        return self._resources[self.get_application(version)]

    def get_owners(self, version: int) -> Mapping[str, Any]:
        """Return the owners of poll, find and cancel methods: the resources, of which those per tenant are not built,
        and child runs."""
        return {**self.get_resources(version), LOCATION: self.child_runs}

    async def register_and_load(self, database: Database) -> None:
        """Store the versions of the current code, and load all others."""
        for pipeline in self._app.pipelines.values():
            await versions.register(database, pipeline)
        await provider_breakers.declare_provider_pools(database, self.provider_names)
        await self.refresh(database)

    async def refresh(self, database: Database) -> None:
        """Load the versions that other processes have stored since the last call."""
        # Numbers are assigned before their commit, so one below the newest may appear later.
        known = max(self._graphs, default=0) - VERSION_LOOKBACK
        self._graphs |= await versions.load_newer_graphs(database, list(self._app.pipelines), known)

    def _find_creating_step(self, version: int, step: str) -> str:
        """Return the step that creates the jobs of this one when it ends: its source, or its only dependency."""
        graph = self._graphs[version]
        shape = next(shape for shape in graph.steps if shape.name == step)
        if shape.source is not None and shape.created_on == "expansion":
            return shape.source
        (dependency,) = (edge.from_step for edge in graph.edges if edge.to_step == step and edge.counted)
        return dependency

    def _build_step_call(self, version: int, step: str) -> StepCall | None:
        """Return None if the current code cannot run this step of that version."""
        graph = self._graphs[version]
        pipeline = self._app.pipelines[graph.pipeline]
        if step not in pipeline.steps:
            return None
        try:
            return StepCall(pipeline, pipeline.steps[step], graph, self.get_resources(version))
        except Exception as error:  # noqa: BLE001  (a step that cannot be run must not stop the others)
            log.warning(
                "step_not_served",
                message="the current code cannot run this step for runs of this version; another worker may",
                pipeline=pipeline.name,
                step=step,
                version=version,
                reason=str(error),
            )
            return None


async def _open_resource(value: Any, stack: AsyncExitStack) -> Any:
    """Return the resource, opened if it is per worker; as a provider too."""
    if isinstance(value, PerWorker):
        return await stack.enter_async_context(value.open())
    if isinstance(value, SingleProvider):
        return SingleProvider(value.name, await _open_resource(value.provider, stack))
    if isinstance(value, ProviderChain):
        providers = {name: await _open_resource(provider, stack) for name, provider in value}
        return ProviderChain(providers, switch_delay=value.switch_delay)
    return value
