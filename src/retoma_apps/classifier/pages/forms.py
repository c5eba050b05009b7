"""The form of a project: parse its text and report what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from retoma.translations import Translator
from retoma_apps.classifier.models import DEFAULT_MODEL, Project, find_duplicate
from retoma_apps.classifier.pages.messages import FIELD_ERRORS
from retoma_apps.forms import Form, validate_form

FIELDS = (
    "nome",
    "taxonomia",
    "prompt",
    "exemplos",
    "modelo",
    "confianca_minima",
    "max_retries_execucao",
    "max_retries_documento",
)
LARGEST_TEXT = 400_000  # characters of examples that a browser's form can hold
LINE_BREAK_MARK = "↵"
_COLON = re.compile(r"(?<!\\):")
_NUMBERS = ("confianca_minima", "max_retries_execucao", "max_retries_documento")


@dataclass(frozen=True)
class ProjectForm(Form):
    """After a conflict, `newer_fields` are the current values that differ."""

    newer_fields: dict[str, str] = field(default_factory=dict)
    has_examples: bool = True


def empty_form() -> ProjectForm:
    return ProjectForm(
        dict.fromkeys(FIELDS, "")
        | {
            "modelo": DEFAULT_MODEL,
            "confianca_minima": "60",
            "max_retries_execucao": "3",
            "max_retries_documento": "2",
        }
    )


def project_form(project: Project) -> ProjectForm:
    fields = project_fields(project)
    return ProjectForm(fields, has_examples=len(fields["exemplos"]) <= LARGEST_TEXT)


def project_fields(project: Project) -> dict[str, str]:
    return {
        "nome": project.nome,
        "taxonomia": _format_lines((each.rotulo, each.descricao) for each in project.taxonomia),
        "prompt": project.prompt,
        "exemplos": _format_lines((each.rotulo, each.texto) for each in project.exemplos),
        "modelo": project.modelo,
        "confianca_minima": f"{project.confianca_minima * 100:g}",
        "max_retries_execucao": str(project.max_retries_execucao),
        "max_retries_documento": str(project.max_retries_documento),
    }


def submitted_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of this form, with plain line ends."""
    return {name: fields.get(name, "").replace("\r\n", "\n") for name in FIELDS}


def changed_fields(submitted: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    return {name: stored[name] for name in FIELDS if submitted[name].strip() != stored[name].strip()}


def parse_project(fields: Mapping[str, str], translator: Translator, stored: Project | None = None) -> Project:
    """Return the project in the form, or raise `InvalidForm`. Examples that the form did not show stay as `stored`."""
    wrong: dict[str, str] = {}
    given: dict[str, Any] = {name: fields.get(name, "").strip() for name in ("nome", "prompt", "modelo")}
    given["taxonomia"] = [
        {"rotulo": label, "descricao": text} for _, label, text in _parse_lines(fields.get("taxonomia", ""))
    ]
    if "exemplos" in fields:
        given["exemplos"] = _parse_examples(
            fields["exemplos"], {each["rotulo"] for each in given["taxonomia"]}, translator, wrong
        )
    elif stored is not None:
        given["exemplos"] = stored.exemplos
    for name in _NUMBERS:
        given[name] = _parse_number(fields.get(name, ""))
    if given["confianca_minima"] is not None:
        given["confianca_minima"] /= 100
    twice = find_duplicate(each["rotulo"] for each in given["taxonomia"])
    if twice is not None:
        wrong["taxonomia"] = translator.gettext("The label “%(label)s” appears twice.", label=twice)
    return validate_form(Project, given, wrong, FIELD_ERRORS, translator)


def _parse_examples(
    text: str, labels: set[str], translator: Translator, errors: dict[str, str]
) -> list[dict[str, str]]:
    found = []
    for line, label, example in _parse_lines(text):
        if not example:
            errors.setdefault(
                "exemplos", translator.gettext("Line %(line)s has no label: write label: text.", line=line)
            )
        elif label not in labels:
            errors.setdefault(
                "exemplos",
                translator.gettext(
                    "Line %(line)s has the label “%(label)s”, which is not among the labels above.",
                    line=line,
                    label=label[:100],
                ),
            )
        found.append({"rotulo": label, "texto": example})
    return found


def _parse_lines(text: str) -> Iterable[tuple[int, str, str]]:
    """Yield number, label and text of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            label, *rest = _COLON.split(line, maxsplit=1)
            shown = rest[0].strip() if rest else ""
            yield number, label.strip().replace("\\:", ":"), shown.replace(LINE_BREAK_MARK, "\n")


def _format_lines(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(_format_line(label, text) for label, text in pairs)


def _format_line(label: str, text: str) -> str:
    plain = LINE_BREAK_MARK.join(text.splitlines())
    return f"{label.replace(':', chr(92) + ':')}: {plain}".removesuffix(": ")


def _parse_number(text: str) -> float | None:
    """Return None for a text that is not a number."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None
