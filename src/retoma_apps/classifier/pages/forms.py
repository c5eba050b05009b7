"""The form of a project: lines that people write, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from retoma_apps.classifier.models import DEFAULT_MODEL, Project
from retoma_apps.classifier.pages.words import Words

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
LARGEST_TEXT = 400_000  # letters of examples that a browser's form can carry
LINE_BREAK_MARK = "↵"
_COLON = re.compile(r"(?<!\\):")
_NUMBERS = ("confianca_minima", "max_retries_execucao", "max_retries_documento")


@dataclass(frozen=True)
class Form:
    """What stands in the fields, and what is wrong with each.

    `is_bounced` if a colleague has saved meanwhile; `theirs` is then what differs.
    """

    fields: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    newer_fields: dict[str, str] = field(default_factory=dict)
    has_examples: bool = True
    has_conflict: bool = False


class InvalidForm(Exception):
    """`found` are sentences by field."""

    def __init__(self, errors: dict[str, str]) -> None:
        self.errors = errors


def empty_form() -> Form:
    return Form(
        dict.fromkeys(FIELDS, "")
        | {
            "modelo": DEFAULT_MODEL,
            "confianca_minima": "60",
            "max_retries_execucao": "3",
            "max_retries_documento": "2",
        }
    )


def project_form(project: Project) -> Form:
    fields = project_fields(project)
    return Form(fields, has_examples=len(fields["exemplos"]) <= LARGEST_TEXT)


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
    """The fields of ours among those that came; line ends as browsers send them are made plain."""
    return {name: fields.get(name, "").replace("\r\n", "\n") for name in FIELDS}


def changed_fields(submitted: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    return {name: stored[name] for name in FIELDS if submitted[name].strip() != stored[name].strip()}


def parse_project(fields: Mapping[str, str], say: Words, stored: Project | None = None) -> Project:
    """The project that somebody wrote. Raises Wrong. Examples that the form did not show stay as they are `kept`."""
    wrong: dict[str, str] = {}
    given: dict[str, Any] = {name: fields.get(name, "").strip() for name in ("nome", "prompt", "modelo")}
    given["taxonomia"] = [
        {"rotulo": label, "descricao": text} for _, label, text in _parse_lines(fields.get("taxonomia", ""))
    ]
    if "exemplos" in fields:
        given["exemplos"] = _parse_examples(
            fields["exemplos"], {each["rotulo"] for each in given["taxonomia"]}, say, wrong
        )
    elif stored is not None:
        given["exemplos"] = stored.exemplos
    for name in _NUMBERS:
        given[name] = _parse_number(fields.get(name, ""))
    if given["confianca_minima"] is not None:
        given["confianca_minima"] /= 100
    twice = _find_duplicate(each["rotulo"] for each in given["taxonomia"])
    if twice is not None:
        wrong["taxonomia"] = say("wrong twice", label=twice)
    return _validate(given, say, wrong)


def _validate(values: dict[str, Any], say: Words, errors: dict[str, str]) -> Project:
    try:
        made = Project.model_validate(values)
    except ValidationError as error:
        for each in error.errors():
            name = str(each["loc"][0])
            errors.setdefault(name, say(f"wrong {name}"))
        made = None
    if errors or made is None:
        raise InvalidForm(errors)
    return made


def _parse_examples(text: str, labels: set[str], say: Words, errors: dict[str, str]) -> list[dict[str, str]]:
    found = []
    for line, label, example in _parse_lines(text):
        if not example:
            errors.setdefault("exemplos", say("wrong line", line=line))
        elif label not in labels:
            errors.setdefault("exemplos", say("wrong label", line=line, label=label[:100]))
        found.append({"rotulo": label, "texto": example})
    return found


def _parse_lines(text: str) -> Iterable[tuple[int, str, str]]:
    """Number, label and text of each line that is not empty."""
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


def _find_duplicate(labels: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for label in labels:
        if label.casefold() in seen:
            return label
        seen.add(label.casefold())
    return None


def _parse_number(text: str) -> float | None:
    """None for what is no number."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None
