"""Projects: each is a tenant, whose profile it is."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma import Client, GiveUp
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma_apps.classifier.errors import Missing
from retoma_apps.classifier.models import Project
from retoma_apps.providers.llm import Accuracy, Example, OfflineLlm

_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")
_MAX_SAME_NAME = 50
_MAX_CACHED = 100
MIN_EXAMPLES_TO_MEASURE = 20  # examples: with fewer a share of right answers says little


@dataclass(frozen=True)
class StoredProject:
    """A project as it is kept. `id` stays the same when its name changes."""

    id: str
    project: Project
    revision: int
    changed_at: datetime

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            **self.project.model_dump(),
            "revisao": self.revision,
            "alterado_em": self.changed_at.isoformat(),
        }


async def get_project(client: Client, project: str) -> StoredProject:
    try:
        return _stored_project(await client.tenants.get_profile(project))
    except NotFound:
        raise project_not_found(project) from None


def project_not_found(project: str) -> Missing:
    return Missing(f"there is no project {project!r:.120}", pt=f"não há projeto {project!r:.120}")


async def list_projects(client: Client, tenant: str | None) -> list[StoredProject]:
    """All, or the one that a key is for."""
    return [
        _stored_project(profile) for profile in await client.tenants.list_profiles() if tenant in (None, profile.tenant)
    ]


async def create_project(client: Client, project: Project, tenant: str | None) -> StoredProject:
    """A new project, with an id made from its name; for a key of one project, that one."""
    base = tenant or make_project_id(project.nome)
    for number in range(1, 2 if tenant else _MAX_SAME_NAME):
        name = base if number == 1 else f"{base}-{number}"
        if tenant is None and await client.runs.list(tenant=name, limit=1, with_input=False):
            continue  # it was the id of a project that is deleted, whose executions stay
        try:
            return _stored_project(await client.tenants.set_profile(name, project.model_dump(), revision=0))
        except Conflict:
            continue
    if tenant:
        raise Conflict(f"this key is for the project {base!r}, which is there already: change that one with PUT")
    raise Conflict(f"there is a project {base!r} already: choose another name")


async def update_project(client: Client, project: str, value: Project, revision: int | None) -> StoredProject:
    """Executions that began before keep what was in force then."""
    seen = await get_project(client, project)
    known = seen.revision if revision is None else revision
    return _stored_project(await client.tenants.set_profile(project, value.model_dump(), revision=known))


class OfflineAccuracies:
    """How often the offline model is right on examples that it had not seen: measured once for each revision."""

    def __init__(self) -> None:
        self._measuring: dict[tuple[str, int], asyncio.Task[Accuracy | None]] = {}

    async def get(self, stored: StoredProject, timeout: float) -> tuple[Accuracy | None, bool]:
        """And whether it has been measured by then. None if there is too little to learn from."""
        place = (stored.id, stored.revision)
        if place not in self._measuring:
            self._measuring = dict(list(self._measuring.items())[-_MAX_CACHED:])
            self._measuring[place] = asyncio.create_task(_measure_accuracy(stored.project))
        task = self._measuring[place]
        await asyncio.wait([task], timeout=timeout)
        return (task.result(), True) if task.done() else (None, False)


async def _measure_accuracy(project: Project) -> Accuracy | None:
    if len({example.rotulo for example in project.exemplos}) < 2:
        return None
    try:
        return await OfflineLlm([Example(each.texto, each.rotulo) for each in project.exemplos]).accuracy()
    except GiveUp:
        return None  # nothing to learn from, or nothing to learn with


def make_project_id(name: str) -> str:
    """`pecas-processuais` for "Peças processuais"."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_AN_ID.sub("-", plain).strip("-")[:60] or "projeto"


def _stored_project(profile: Profile) -> StoredProject:
    return StoredProject(profile.tenant, Project.model_validate(profile.value), profile.revision, profile.changed_at)
