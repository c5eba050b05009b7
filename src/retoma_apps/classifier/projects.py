"""Projects: each is a tenant, whose profile it is."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma import Client
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma_apps.classifier.models import Project
from retoma_apps.providers.llm import Accuracy, Example, OfflineLlm

_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")
_MOST_NAMESAKES = 50
FEWEST_TO_MEASURE = 20  # examples: with fewer a share of right answers says little


@dataclass(frozen=True)
class Kept:
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


async def found(client: Client, project: str) -> Kept:
    try:
        return _kept(await client.profile(project))
    except NotFound:
        raise NotFound(f"there is no project {project!r:.120}") from None


async def listed(client: Client, tenant: str | None) -> list[Kept]:
    """All, or the one that a key is for."""
    return [_kept(profile) for profile in await client.profiles() if tenant in (None, profile.tenant)]


async def added(client: Client, project: Project, tenant: str | None) -> Kept:
    """A new project, with an id made from its name; for a key of one project, that one."""
    base = tenant or id_of(project.nome)
    for number in range(1, 2 if tenant else _MOST_NAMESAKES):
        try:
            name = base if number == 1 else f"{base}-{number}"
            return _kept(await client.set_profile(name, project.model_dump(), revision=0))
        except Conflict:
            continue
    raise Conflict(f"there is a project {base!r} already: choose another name")


async def changed(client: Client, project: str, value: Project, revision: int | None) -> Kept:
    """Executions that began before keep what was in force then."""
    seen = await found(client, project)
    return _kept(await client.set_profile(project, value.model_dump(), revision=revision or seen.revision))


async def accuracy(project: Project) -> Accuracy | None:
    """Of the offline model, on examples that it had not seen. None if there are too few of them."""
    if len({example.rotulo for example in project.exemplos}) < 2:
        return None
    return await OfflineLlm([Example(each.texto, each.rotulo) for each in project.exemplos]).accuracy()


def id_of(name: str) -> str:
    """`pecas-processuais` for "Peças processuais"."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_AN_ID.sub("-", plain).strip("-")[:60] or "projeto"


def _kept(profile: Profile) -> Kept:
    return Kept(profile.tenant, Project.model_validate(profile.value), profile.revision, profile.changed_at)
