"""Render the rows of the documents without a template: one page can have thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from retoma.records import ItemStatus
from retoma.server import BadgeStyle, PageContext
from retoma.states import JobState
from retoma_apps.classifier.operations.executions import document_to_json
from retoma_apps.classifier.pages.badges import DOCUMENT_BADGES, NEEDS_CHECK_BADGE
from retoma_apps.classifier.pages.messages import DOCUMENT_STATUS_NAMES, describe_error_code

LONGEST_MESSAGE = 160
EMPTY_CELL = "\N{EN DASH}"


@dataclass(frozen=True)
class Table:
    """What all rows share. `query` has the filters, to which actions return.

    `may_decide`: the viewer may confirm and correct labels; `may_change`: the viewer may change the run.
    """

    run: UUID
    context: PageContext
    labels: Sequence[str]
    min_confidence: float
    csrf: str
    query: Mapping[str, str]
    only_unsure: bool = False
    may_decide: bool = True
    may_change: bool = True

    @property
    def path(self) -> str:
        return f"/classificador/execucoes/{self.run}"

    def action(self, path: str = "") -> str:
        """Return the address of an action on this page, which returns to it."""
        query = urlencode(self.query)
        return f"{self.path}{path}{'?' if query else ''}{query}"

    def address(self, path: str = "") -> str:
        return escape(self.action(path))

    @property
    def is_filtered(self) -> bool:
        return any(name != "depois" for name in self.query)

    def file_url(self, code: str) -> str:
        return f"/execucoes/{self.run}/arquivo?codigo={quote(code, safe='')}"

    def get_status(self, item: ItemStatus) -> str:
        """Return the document's status, or `REVER` if a person should check its label."""
        shown = document_to_json(item, self.min_confidence)
        return "REVER" if shown["rever"] else str(shown["status"])

    def matches(self, item: ItemStatus) -> bool:
        """Return whether the filters by label, error and low confidence include the document."""
        shown = document_to_json(item, self.min_confidence)
        return (
            (shown["rever"] or not self.only_unsure)
            and self.query.get("rotulo") in (None, shown["rotulo"])
            and (self.query.get("erro") in (None, shown["erro_codigo"] or "ERROR"))
        )

    def render_row(self, item: ItemStatus, *, editing: bool = False) -> str:
        """Render a row. `editing` shows the form for its label."""
        shown = document_to_json(item, self.min_confidence)
        number, code = item.position, escape(shown["codigo"])
        address = escape(f"{self.path}?{urlencode({**self.query, 'doc': number})}#leitor")
        select = escape(self.context.gettext("Select %(code)s", code=shown["codigo"]))
        pick = f'<input type="checkbox" name="n" value="{number}" form="varios" data-pick aria-label="{select}">'
        pick = pick if self.may_decide else ""
        status = "REVER" if shown["rever"] else shown["status"]
        look = NEEDS_CHECK_BADGE if shown["rever"] else DOCUMENT_BADGES[shown["status"]]
        attempts = self.context.gettext("Attempts")
        return (
            f'<tr id="d{number}" data-c="{code}" data-s="{status}">'
            '<td class="lead wrapany"><span class="row">'
            f"{pick}"
            f'<a class="doc" data-read="{number}" href="{address}">{code}</a></span></td>'
            f'<td class="st">{_render_badge(look, self.context.translate(DOCUMENT_STATUS_NAMES[status]))}</td>'
            f"{self._render_label(shown, number, editing=editing)}"
            f"{self._render_confidence(shown)}"
            f'<td class="n" data-l="{attempts}">{shown["tentativas"]}</td>'
            f"{self._render_error(shown)}"
            f'<td class="n acts full">{self._render_actions(shown, number, editing=editing)}</td></tr>\n'
        )

    def _render_label(self, shown: Mapping[str, Any], number: int, *, editing: bool) -> str:
        label = self.context.gettext("Label")
        head = f'<td class="wrapany full" data-l="{label}">'
        if editing and self.may_decide:
            return f"{head}{self._render_label_form(shown, number)}</td>"
        if shown["duplicado_de"]:
            same = self.context.gettext("same as %(code)s", code=shown["duplicado_de"])
            return f'{head}<span class="faint">{escape(same)}</span></td>'
        if not shown["rotulo"]:
            return f'<td class="none">{EMPTY_CELL}</td>'
        why = f' title="{escape(shown["justificativa"])}"' if shown["justificativa"] else ""
        return f'{head}<span class="strong"{why}>{escape(shown["rotulo"])}</span>{self._render_model_label(shown)}</td>'

    def _render_model_label(self, shown: Mapping[str, Any]) -> str:
        """Render the model's label of a corrected document."""
        if not shown["corrigido"]:
            return ""
        if shown["rotulo_modelo"] is None:
            said = self.context.gettext("by a person")
        elif shown["rotulo_modelo"] == shown["rotulo"]:
            said = self.context.gettext("confirmed by a person")
        else:
            said = self.context.gettext("the model said %(label)s", label=shown["rotulo_modelo"])
        return f' <span class="former">{_render_icon("hand")}{escape(said)}</span>'

    def _render_confidence(self, shown: Mapping[str, Any]) -> str:
        if shown["confianca"] is None or shown["corrigido"]:
            return f'<td class="n none">{EMPTY_CELL}</td>'
        number = self.context.formats.decimal(shown["confianca"], 2)
        label = self.context.gettext("Confidence")
        return f'<td class="n" data-l="{label}">{number}</td>'

    def _render_error(self, shown: Mapping[str, Any]) -> str:
        code = shown["erro_codigo"]
        if not code:
            return f'<td class="none">{EMPTY_CELL}</td>'
        if shown["status"] != "ERRO":
            return f'<td class="full faint"><code>{escape(code)}</code></td>'
        message = escape(str(shown["erro_detalhe"] or "")[:LONGEST_MESSAGE])
        meaning = escape(describe_error_code(self.context.translator, code))
        return (
            f'<td class="full errline wrapany" title="{message}">{meaning} '
            f'<code class="faint">{escape(code)}</code></td>'
        )

    def _render_actions(self, shown: Mapping[str, Any], number: int, *, editing: bool) -> str:
        if editing or shown["status"] not in ("CONCLUIDO", "ERRO"):
            return ""
        made = [self._render_edit_link(number)] if self.may_decide else []
        if shown["rever"] and self.may_decide:
            made.insert(0, _render_button("confirmar", number, self.context.pgettext("action", "Confirm")))
        if shown["status"] == "ERRO" and self.may_change:
            made.append(_render_button("pular", number, self.context.pgettext("action", "Skip")))
        return "".join(made)

    def _render_edit_link(self, number: int) -> str:
        address = escape(f"?{urlencode({**self.query, 'corrigir': number})}#d{number}")
        correct = self.context.pgettext("action", "Correct")
        return f'<a class="btn small quiet" data-edit="{number}" href="{address}">{correct}</a>'

    def _render_label_form(self, shown: Mapping[str, Any], number: int) -> str:
        options = "".join(
            f'<option value="{escape(label)}"{" selected" if label == shown["rotulo"] else ""}>{escape(label)}</option>'
            for label in ("", *self.labels)
        )
        label = self.context.gettext("Correct label")
        save, cancel = self.context.pgettext("action", "Save"), self.context.pgettext("action", "Cancel")
        return (
            f'<form class="row relabel" method="post" action="{self.address("/corrigir")}">'
            f'<input type="hidden" name="csrf" value="{self.csrf}"><input type="hidden" name="n" value="{number}">'
            f'<select name="rotulo" required aria-label="{label}">{options}</select>'
            f'<button class="btn small primary">{save}</button>'
            f'<a class="btn small quiet" data-leave="{number}" href="{self.address()}#d{number}">'
            f"{cancel}</a>"
            "</form>"
        )


def pending_item(entry: Mapping[str, Any], position: int) -> ItemStatus:
    """Return a document of an execution that has not started yet."""
    state = JobState.SKIPPED if entry.get("duplicado_de") else JobState.WAITING
    return ItemStatus(entry["codigo"], position, entry, state, "", 0, None, None, None, None, None, None, None)


def _render_badge(badge: BadgeStyle, word: str) -> str:
    return f'<span class="badge plain {badge.colour}">{_render_icon(badge.icon)}{word}</span>'


def _render_icon(name: str) -> str:
    return f'<svg class="i" aria-hidden="true"><use href="#i-{name}"/></svg>'


def _render_button(form: str, number: int, word: str) -> str:
    """Render a button of a form that the page has once."""
    return f'<button class="btn small" form="{form}" name="n" value="{number}">{word}</button>'
