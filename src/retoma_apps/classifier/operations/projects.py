"""Projects: each is the profile of its own tenant."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma import Client, GiveUp
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma.translations import N_
from retoma_apps.classifier.models import Project
from retoma_apps.providers.llm import Accuracy, Example, OfflineLlm
from retoma_apps.providers.unicode_text import decompose

_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")
_MAX_SAME_NAME = 50
_MAX_CACHED = 100
MIN_EXAMPLES_TO_MEASURE = 20  # with fewer examples, the accuracy means little


@dataclass(frozen=True)
class StoredProject:
    """A stored project. `id` stays the same when its name changes."""

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


def project_not_found(project: str) -> NotFound:
    return NotFound(N_("there is no project %(project)s"), project=f"{project!r:.120}")


async def list_projects(client: Client) -> list[StoredProject]:
    """Return all projects that the client may see."""
    return [_stored_project(profile) for profile in await client.tenants.list_profiles()]


async def create_project(client: Client, project: Project) -> StoredProject:
    """Create a project with an id derived from its name, or with that of the client's only tenant."""
    tenant = next(iter(client.allowed_tenants)) if client.allowed_tenants and len(client.allowed_tenants) == 1 else None
    base = tenant or make_project_id(project.nome)
    for number in range(1, 2 if tenant else _MAX_SAME_NAME):
        name = base if number == 1 else f"{base}-{number}"
        if tenant is None and await client.runs.list(tenant=name, limit=1, with_input=False):
            continue  # the id of a deleted project whose executions remain
        try:
            return _stored_project(await client.tenants.set_profile(name, project.model_dump(), revision=0))
        except Conflict:
            continue
    if tenant:
        raise Conflict(f"this key is for the project {base!r}, which already exists: change it with PUT")
    raise Conflict(f"there is already a project {base!r}: choose another name")


async def update_project(client: Client, project: str, value: Project, revision: int | None) -> StoredProject:
    """Change a project. Earlier executions keep the values from their start."""
    stored = await get_project(client, project)
    known = stored.revision if revision is None else revision
    return _stored_project(await client.tenants.set_profile(project, value.model_dump(), revision=known))


class OfflineAccuracies:
    """The accuracy of the offline model on unseen examples, measured once for each revision of a project."""

    def __init__(self) -> None:
        self._measuring: dict[tuple[str, int], asyncio.Task[Accuracy | None]] = {}

    async def get(self, stored: StoredProject, timeout: float) -> tuple[Accuracy | None, bool]:
        """Return the accuracy, or None with too few examples, and whether it was measured within the timeout."""
        key = (stored.id, stored.revision)
        if key not in self._measuring:
            self._measuring = dict(list(self._measuring.items())[-_MAX_CACHED:])
            self._measuring[key] = asyncio.create_task(_measure_accuracy(stored.project))
        task = self._measuring[key]
        await asyncio.wait([task], timeout=timeout)
        return (task.result(), True) if task.done() else (None, False)


async def _measure_accuracy(project: Project) -> Accuracy | None:
    if len({example.rotulo for example in project.exemplos}) < 2:
        return None
    try:
        return await OfflineLlm([Example(each.texto, each.rotulo) for each in project.exemplos]).accuracy()
    except GiveUp:
        return None  # no words in the examples, or scikit-learn is missing


def make_project_id(name: str) -> str:
    """Return `pecas-processuais` for "Peças processuais"."""
    plain = decompose(name).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_AN_ID.sub("-", plain).strip("-")[:60] or "projeto"


def _stored_project(profile: Profile) -> StoredProject:
    return StoredProject(profile.tenant, Project.model_validate(profile.value), profile.revision, profile.changed_at)
