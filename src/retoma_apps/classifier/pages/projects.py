"""Projects: all of them with what was done last, and each with its form and its uploads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from starlette.responses import Response

from retoma import Client
from retoma.errors import Conflict
from retoma.records import Run
from retoma.server import Page, Visit
from retoma_apps.classifier import batches, projects
from retoma_apps.classifier.batches import Execution
from retoma_apps.classifier.models import MOST_DOCUMENTS, ROUTE
from retoma_apps.classifier.pages import forms
from retoma_apps.classifier.pages.forms import Form
from retoma_apps.classifier.pages.looks import PARTS, STATUSES
from retoma_apps.classifier.pages.remembered import Remembered
from retoma_apps.classifier.pages.words import Words
from retoma_apps.classifier.projects import FEWEST_TO_MEASURE, Accuracies, Kept
from retoma_apps.classifier.reading.errors import Code
from retoma_apps.providers.llm import Accuracy

RECENT = 12
RECENT_OF_PROJECT = 25
SECONDS_TO_MEASURE = 0.3  # that a page waits; what takes longer is there at the next look


class ProjectPages:
    """`is_offline` is whether labels come from the model of this machine, which learns from examples alone."""

    def __init__(self, accuracies: Accuracies, *, is_offline: bool) -> None:
        self._is_offline = is_offline
        self._accuracies = accuracies
        self._ended = Remembered[Execution]()

    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show_all, self.create, nav=("Classifier", "Classificador")),
            Page(ROUTE.rstrip("/"), _to_all),
            Page(f"{ROUTE}{{projeto}}", self.show, self.change),
        )

    async def show_all(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        found = await projects.listed(visit.client, None)
        recent = await self._executions(visit.client, None, RECENT)
        return visit.show(
            "classifier.html",
            status,
            projects=found,
            last=await self._last(visit.client, found, recent),
            names={each.id: each.project.nome for each in found},
            executions=recent,
            form=form or (forms.empty() if "novo" in visit.asked else None),
            **await self._common(visit),
        )

    async def create(self, visit: Visit) -> Response:
        say = Words(visit.language)
        try:
            kept = await projects.added(visit.client, forms.read(visit.fields, say), None)
        except forms.Wrong as error:
            return await self.show_all(visit, 422, Form(forms.written(visit.fields), error.found))
        return visit.go(f"{ROUTE}{kept.id}", "criado")

    async def show(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        kept = await projects.found(visit.client, visit.request.path_params["projeto"])
        visit.path = f"{ROUTE}{kept.id}"
        if form is None and "editar" in visit.asked:
            form = forms.of_project(kept.project)
        return visit.show(
            "classifier_project.html",
            status,
            kept=kept,
            form=form,
            names={kept.id: kept.project.nome},
            executions=await self._executions(visit.client, kept.id, RECENT_OF_PROJECT),
            most=MOST_DOCUMENTS,
            refusals=_refusals(Words(visit.language)),
            **await self._common(visit, kept),
        )

    async def change(self, visit: Visit) -> Response:
        """What a colleague has changed meanwhile is shown beside what was written, and nothing is saved over it."""
        say = Words(visit.language)
        kept = await projects.found(visit.client, visit.request.path_params["projeto"])
        if "excluir" in visit.fields:
            await visit.client.drop_profile(kept.id)
            return visit.go(ROUTE, "excluido")
        try:
            value = forms.read(visit.fields, say, kept.project)
            await projects.changed(visit.client, kept.id, value, _revision(visit))
        except forms.Wrong as error:
            return await self.show(visit, 422, _bounced(visit, error.found))
        except Conflict:
            return await self.show(visit, 409, _bounced(visit, {}, await projects.found(visit.client, kept.id)))
        return visit.go(f"{ROUTE}{kept.id}", "salvo")

    async def _common(self, visit: Visit, kept: Kept | None = None) -> dict[str, Any]:
        say = Words(visit.language)
        accuracy, is_measured = await self._accuracy(kept) if kept and self._is_offline else (None, True)
        return {
            "w": say,
            "now": await visit.client.now(),
            "looks_of": STATUSES,
            "parts_of": PARTS,
            "is_offline": self._is_offline,
            "accuracy": accuracy,
            "is_measured": is_measured,
            "fewest": FEWEST_TO_MEASURE,
            "said": say.said(visit.asked.get("said", "")),
        }

    async def _accuracy(self, kept: Kept) -> tuple[Accuracy | None, bool]:
        """Of this revision of a project, and whether it has been measured already."""
        if len(kept.project.exemplos) < FEWEST_TO_MEASURE:
            return None, True
        return await self._accuracies.of(kept, SECONDS_TO_MEASURE)

    async def _executions(self, client: Client, project: str | None, limit: int) -> list[Execution]:
        found = await batches.listed(client, project=project, limit=limit)
        return [await self._execution(client, run) for run in found]

    async def _execution(self, client: Client, run: Run) -> Execution:
        return await self._ended.of(run, lambda: batches.execution(client, run))

    async def _last(self, client: Client, found: list[Kept], recent: list[Execution]) -> dict[str, Execution]:
        """The newest execution of each project that has one."""
        last: dict[str, Execution] = {}
        for each in recent:
            last.setdefault(each.run.tenant, each)
        for kept in found:
            if kept.id not in last:
                last |= {each.run.tenant: each for each in await self._executions(client, kept.id, 1)}
        return last


def _refusals(say: Words) -> dict[str, str]:
    """What the page says of a file that is not taken, by code."""
    return {code: say.code(code) for code in get_args(Code)} | {"FILE_TOO_LARGE": say("upload too large")}


async def _to_all(visit: Visit) -> Response:
    return visit.go(ROUTE)


def _bounced(visit: Visit, wrong: dict[str, str], newer: Kept | None = None) -> Form:
    fields = forms.written(visit.fields) | {
        "revisao": str(newer.revision) if newer else visit.fields.get("revisao", "")
    }
    form = Form(fields, wrong, has_examples="exemplos" in visit.fields)
    if newer is None:
        return form
    theirs = forms.differing(fields, forms.fields_of(newer.project))
    return replace(form, theirs=theirs if form.has_examples else theirs | {"exemplos": ""}, is_bounced=True)


def _revision(visit: Visit) -> int:
    given = visit.fields.get("revisao", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else -1
