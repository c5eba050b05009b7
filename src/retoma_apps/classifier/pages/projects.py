"""The pages of projects: the list with recent executions, and each with its form and uploads."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, get_args

from starlette.responses import Response

from retoma import Client
from retoma.errors import Conflict
from retoma.server import Page, PageContext
from retoma.translations import N_
from retoma_apps.classifier.models import MOST_DOCUMENTS, ROUTE
from retoma_apps.classifier.operations import executions, projects
from retoma_apps.classifier.operations.executions import Execution
from retoma_apps.classifier.operations.projects import MIN_EXAMPLES_TO_MEASURE, OfflineAccuracies, StoredProject
from retoma_apps.classifier.pages import forms
from retoma_apps.classifier.pages.badges import BAR_FILLS, EXECUTION_BADGES
from retoma_apps.classifier.pages.common import common_values
from retoma_apps.classifier.pages.ended_run_cache import EndedRunCache
from retoma_apps.classifier.pages.forms import ProjectForm
from retoma_apps.classifier.pages.messages import describe_error_code
from retoma_apps.classifier.pipeline import classification
from retoma_apps.classifier.steps.reading.errors import Code
from retoma_apps.forms import InvalidForm, parse_revision
from retoma_apps.providers import llm
from retoma_apps.providers.chains import get_first_provider
from retoma_apps.providers.llm import Accuracy
from retoma_apps.providers.provider import format_variables

RECENT = 12
RECENT_OF_PROJECT = 25
SECONDS_TO_MEASURE = 0.3  # how long a page waits; a longer measurement is shown at the next refresh


class ProjectPages:
    def __init__(self, accuracies: OfflineAccuracies) -> None:
        self._accuracies = accuracies
        self._ended_executions = EndedRunCache[Execution]()

    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show_all, self.create, nav=N_("Classifier"), submit_scope="runs:write"),
            Page(f"{ROUTE}{{projeto}}", self.show, self.change, submit_scope="runs:write"),
        )

    async def show_all(self, context: PageContext, status: int = 200, form: ProjectForm | None = None) -> Response:
        found = await projects.list_projects(context.client)
        recent = await self._list_executions(context.client, None, RECENT)
        return context.render(
            "classifier.html",
            status,
            projects=found,
            last=await self._latest_executions(context.client, found, recent),
            names={each.id: each.project.nome for each in found},
            executions=recent,
            form=form or (forms.empty_form() if "novo" in context.query else None),
            **await self._common_values(context),
        )

    async def create(self, context: PageContext) -> Response:
        try:
            kept = await projects.create_project(
                context.client, forms.parse_project(context.fields, context.translator)
            )
        except InvalidForm as error:
            return await self.show_all(context, 422, ProjectForm(forms.submitted_fields(context.fields), error.errors))
        return context.redirect(f"{ROUTE}{kept.id}", "criado")

    async def show(self, context: PageContext, status: int = 200, form: ProjectForm | None = None) -> Response:
        kept = await projects.get_project(context.client, context.request.path_params["projeto"])
        context.path = f"{ROUTE}{kept.id}"
        if form is None and "editar" in context.query:
            form = forms.project_form(kept.project)
        return context.render(
            "classifier_project.html",
            status,
            kept=kept,
            form=form,
            names={kept.id: kept.project.nome},
            executions=await self._list_executions(context.client, kept.id, RECENT_OF_PROJECT),
            most=MOST_DOCUMENTS,
            refusals=_refusal_messages(context),
            **await self._common_values(context, kept),
        )

    async def change(self, context: PageContext) -> Response:
        """Save the form. If someone else saved in the meantime, show both versions and save nothing."""
        kept = await projects.get_project(context.client, context.request.path_params["projeto"])
        if "excluir" in context.fields:
            await context.client.tenants.delete_profile(kept.id)
            return context.redirect(ROUTE, "excluido")
        try:
            value = forms.parse_project(context.fields, context.translator, kept.project)
            await projects.update_project(
                context.client, kept.id, value, parse_revision(context.fields.get("revisao", ""))
            )
        except InvalidForm as error:
            return await self.show(context, 422, _rejected_form(context, error.errors))
        except Conflict:
            return await self.show(
                context, 409, _rejected_form(context, {}, await projects.get_project(context.client, kept.id))
            )
        return context.redirect(f"{ROUTE}{kept.id}", "salvo")

    async def _common_values(self, context: PageContext, stored: StoredProject | None = None) -> dict[str, Any]:
        # Offline, the labels come from the model of this machine, which learns only from examples.
        labeller = await context.client.get_resource("labeller", tenant=stored.id if stored else None)
        is_offline = bool(get_first_provider(labeller).is_offline)
        accuracy, is_measured = await self._get_accuracy(stored) if stored and is_offline else (None, True)
        return {
            "now": await context.client.now(),
            "badges": EXECUTION_BADGES,
            "bar_fills": BAR_FILLS,
            "is_offline": is_offline,
            "llm_variables": format_variables(llm.PROVIDERS),
            "accuracy": accuracy,
            "is_measured": is_measured,
            "fewest": MIN_EXAMPLES_TO_MEASURE,
            **common_values(context),
        }

    async def _get_accuracy(self, stored: StoredProject) -> tuple[Accuracy | None, bool]:
        """Return the accuracy for this revision of a project, and whether the measurement is finished."""
        if len(stored.project.exemplos) < MIN_EXAMPLES_TO_MEASURE:
            return None, True
        return await self._accuracies.get(stored, SECONDS_TO_MEASURE)

    async def _list_executions(self, client: Client, project: str | None, limit: int) -> list[Execution]:
        found = await client.runs.list(tenant=project, pipeline=classification.name, limit=limit)
        return [
            await self._ended_executions.get_or_load(run, partial(executions.get_execution, client, run))
            for run in found
        ]

    async def _latest_executions(
        self, client: Client, stored_projects: list[StoredProject], recent: list[Execution]
    ) -> dict[str, Execution]:
        """Return the newest execution of each project that has one."""
        last: dict[str, Execution] = {}
        for each in recent:
            last.setdefault(each.run.tenant, each)
        for kept in stored_projects:
            if kept.id not in last:
                last |= {each.run.tenant: each for each in await self._list_executions(client, kept.id, 1)}
        return last


def _refusal_messages(context: PageContext) -> dict[str, str]:
    """Return the messages about files that are not accepted, by code."""
    too_large = context.gettext(
        "Too large. A document may have 50 MB, and a zip 2,000 files of 2 GB in total. Split it or make it smaller."
    )
    return {code: describe_error_code(context.translator, code) for code in get_args(Code)} | {
        "FILE_TOO_LARGE": too_large
    }


def _rejected_form(context: PageContext, errors: dict[str, str], newer: StoredProject | None = None) -> ProjectForm:
    fields = forms.submitted_fields(context.fields) | {
        "revisao": str(newer.revision) if newer else context.fields.get("revisao", "")
    }
    form = ProjectForm(fields, errors, has_examples="exemplos" in context.fields)
    if newer is None:
        return form
    theirs = forms.changed_fields(fields, forms.project_fields(newer.project))
    return replace(form, newer_fields=theirs if form.has_examples else theirs | {"exemplos": ""}, has_conflict=True)
