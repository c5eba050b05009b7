"""What the pages say is so: their code runs, their links lead somewhere, their tables are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from typer.main import get_command

import retoma
from retoma.cli.commands import tree
from retoma.client import Client
from retoma.define.options import EachOptions, StepOptions
from retoma.errors import RetomaError, WorkerGone
from retoma.settings import Settings
from retoma.states import DELIVERY_TRANSITIONS, JOB_TRANSITIONS, REVIEW_TRANSITIONS, RUN_TRANSITIONS
from retoma.store.database import Database

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")} - {DOCS / "requirements.md"})

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
WORD = re.compile(r"`([^`]+)`")
PROBLEM = re.compile(r'Problem\(\s*(\d{3}),\s*"(\w+)"')

GROUPS = ("db", "runs", "reviews", "config", "deliveries", "endpoints", "webhooks", "keys", "pools", "prices")
TRANSITIONS: dict[str, Any] = {
    "Jobs": JOB_TRANSITIONS,
    "Runs": RUN_TRANSITIONS,
    "Reviews": REVIEW_TRANSITIONS,
    "Deliveries": DELIVERY_TRANSITIONS,
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    """`mark` is what follows the language: `run` blocks are run, `raises` blocks end with the error they raise."""

    language: str
    mark: str
    text: str


@every_page
async def test_the_python_of_a_page_works(page: Path) -> None:
    """The blocks of a page share their names, from top to bottom."""
    names: dict[str, Any] = {"__name__": f"page_{page.stem.replace('-', '_')}"}
    for block in _blocks(page, "python"):
        code = compile(block.text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if block.mark == "run":
            await _run(code, names)
        elif block.mark == "raises":
            with pytest.raises(RetomaError) as raised:
                await _run(code, names)
            assert str(raised.value) == _last_comment(block)


@every_page
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in _links(page):
        path, _, anchor = target.partition("#")
        leads_to = (page.parent / path).resolve() if path else page
        assert leads_to.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(leads_to), f"{page.name} links to {target}, which has no such heading"


def test_every_page_can_be_found_from_the_list_of_pages() -> None:
    listed = {(DOCS / target).resolve() for target in _links(DOCS / "README.md")}
    assert set(DOCS.rglob("*.md")) - {DOCS / "README.md"} <= listed


def test_the_program_of_the_readme_is_the_quickstart_example() -> None:
    program, _, _ = (ROOT / "examples" / "quickstart.py").read_text().partition("\n# prints: ")
    assert [block.text for block in _blocks(ROOT / "README.md", "python")] == [program]


def test_the_program_of_the_readme_has_at_most_twenty_lines() -> None:
    (program,) = _blocks(ROOT / "README.md", "python")
    assert len([line for line in program.text.splitlines() if line.strip()]) <= 20


def test_contributing_lists_what_make_offers() -> None:
    offered = set(re.findall(r"@echo 'make (\w+)", (ROOT / "Makefile").read_text()))
    listed = {
        name
        for block in _blocks(ROOT / "CONTRIBUTING.md", "sh")
        for name in re.findall(r"^make (\w+)", block.text, re.MULTILINE)
    }
    assert listed == offered


def test_the_table_of_errors_is_that_of_the_code() -> None:
    named = [WORD.findall(row[0])[0] for row in _rows(DOCS / "running.md", "Errors")]
    assert sorted(named) == sorted(error.__name__ for error in RetomaError.__subclasses__() if error is not WorkerGone)


def test_the_table_of_the_apis_errors_has_all_that_the_server_answers() -> None:
    """Forms are those of pages, whose errors are pages too."""
    listed = {(row[0], code) for row in _rows(DOCS / "api.md", "Errors") for code in WORD.findall(row[1])}
    places = (ROOT / "src" / "retoma" / "server", ROOT / "src" / "retoma" / "cli")
    source = "".join(file.read_text() for place in places for file in place.rglob("*.py"))
    answered = {each for each in PROBLEM.findall(source) if "FORM" not in each[1]}
    assert listed == answered | {("422", "UNSAFE_URL")}


def test_the_readme_in_portuguese_has_the_same_code_links_and_headings() -> None:
    english, portuguese = ROOT / "README.md", ROOT / "README.pt-BR.md"
    assert [_code(block) for block in _blocks(english)] == [_code(block) for block in _blocks(portuguese)]
    swapped = {"README.pt-BR.md": "README.md"}
    assert [swapped.get(link, link) for link in _links(english)] == list(_links(portuguese))
    assert len(HEADING.findall(_prose(english))) == len(HEADING.findall(_prose(portuguese)))


def test_the_table_of_settings_is_that_of_the_code() -> None:
    rows = _rows(DOCS / "running.md", "Settings")
    assert rows == [_setting_row(name, field) for name, field in Settings.model_fields.items()]


@pytest.mark.parametrize(("heading", "moves"), TRANSITIONS.items())
def test_the_tables_of_transitions_are_those_of_the_code(heading: str, moves: dict[Any, frozenset[Any]]) -> None:
    rows = _rows(DOCS / "state-machines.md", heading)
    listed = [move for before, after, _ in rows for move in product(WORD.findall(before), WORD.findall(after))]
    assert sorted(listed) == sorted((before, after) for before in moves for after in moves[before])


@pytest.mark.parametrize(("heading", "moves"), TRANSITIONS.items())
def test_every_arrow_of_the_diagrams_is_a_permitted_move(heading: str, moves: dict[Any, frozenset[Any]]) -> None:
    arrows = re.findall(r"(\w+) --> (\w+)", _section(DOCS / "state-machines.md", heading))
    assert arrows
    assert all(after in moves[before] for before, after in arrows)


def test_the_table_of_options_is_that_of_the_code() -> None:
    options = [WORD.findall(row[0])[0] for row in _rows(DOCS / "writing-pipelines.md", "Options of a step")]
    assert sorted(options) == sorted([*StepOptions.__annotations__, "key"])
    only_for_joins = StepOptions.__annotations__.keys() - EachOptions.__annotations__.keys()
    assert only_for_joins == {"proceed_when"}


def test_every_code_of_a_failure_on_the_page_is_one_of_the_code() -> None:
    codes = [WORD.findall(row[0])[0] for row in _rows(DOCS / "writing-pipelines.md", "Codes")]
    sources = [path.read_text() for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".sql")]
    unknown = [code for code in codes if not any(f"{quote}{code}{quote}" in s for s in sources for quote in "'\"")]
    assert codes
    assert unknown == []


def test_the_table_of_layers_is_what_the_linter_proves_in_the_same_order() -> None:
    """The linter's list is exhaustive: it is refused if a part of the package is missing."""
    rows = [sorted(WORD.findall(row[0])) for row in _rows(DOCS / "architecture.md", "Layers")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["retoma"]]
    assert rows == [sorted(_part(name) for name in layer.split(" | ")) for layer in layers]


def test_the_table_of_the_client_has_all_that_it_can_do() -> None:
    named = [word for row in _rows(DOCS / "running.md", "The client") for word in re.findall(r"`([\w.]+)\(", row[0])]
    assert sorted(named) == sorted(_client_methods())


def test_the_table_of_commands_is_that_of_the_code() -> None:
    listed = [tuple(_command(WORD.findall(row[0])[0])) for row in _rows(DOCS / "running.md", "Commands")]
    assert sorted(listed) == sorted(_commands(get_command(tree)))


@every_page
def test_every_command_of_a_page_exists(page: Path) -> None:
    """Lines of shell blocks, and words in backquotes that begin with `retoma`."""
    known = set(_commands(get_command(tree)))
    groups = {command[:1] for command in known}
    for line in _shell_lines(page):
        command = tuple(_command(line))
        assert command in known | groups, f"{page.name}: there is no `{line}`"


@every_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for path in re.findall(r"\b(?:src/retoma|tests|examples|requirements)/[\w./-]+\w", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which does not exist"


def test_every_file_of_the_table_of_changes_exists() -> None:
    cells = [row[1] for row in _rows(DOCS / "concepts.md", "Where to make a change")]
    files = [word for cell in cells for word in WORD.findall(cell) if re.fullmatch(r"[\w/]+\.(py|sql)", word)]
    assert files
    assert [file for file in files if not any((ROOT / "src" / "retoma").rglob(file))] == []


def test_every_public_name_is_on_a_page() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in retoma.__all__ if not re.search(rf"\b{name}\b", text)] == []


def _part(name: str) -> str:
    return f"{name}/" if (Path(retoma.__file__).parent / name).is_dir() else f"{name}.py"


def _client_methods() -> Iterator[str]:
    """`start`, and with their namespace those such as `runs.get`."""
    client: Any = Client(None, cast(Database, None))
    yield from _public_methods(Client) - {"close"}
    for name, namespace in vars(client).items():
        if not name.startswith("_"):
            yield from (f"{name}.{method}" for method in _public_methods(type(namespace)))


def _public_methods(kind: type) -> set[str]:
    return {name for name, member in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


async def _run(code: Any, names: dict[str, Any]) -> None:
    ended = eval(code, names)
    if inspect.iscoroutine(ended):
        await ended


def _blocks(page: Path, language: str | None = None) -> Iterator[Block]:
    for name, mark, text in FENCE.findall(page.read_text()):
        if language in (None, name):
            yield Block(name, mark.strip(), text)


def _code(block: Block) -> list[str]:
    """Without what people read: comments of shell blocks, and what programs say."""
    lines = [] if block.language == "text" else block.text.splitlines()
    return [re.sub(r"\s*# .*", "", line) if block.language == "sh" else line for line in lines]


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, as the words that follow `retoma`."""
    if not hasattr(command, "commands"):
        yield path
        return
    for name, one in command.commands.items():
        if not one.hidden:
            yield from _commands(one, (*path, name))


def _command(line: str) -> Iterator[str]:
    """The words of a command line that say which command it is."""
    words = re.sub(r"^.*\bretoma ", "", line).split()
    for word in words[: 2 if words[0] in GROUPS else 1]:
        if re.fullmatch(r"[a-z]+(-[a-z]+)*", word):
            yield word


def _shell_lines(page: Path) -> Iterator[str]:
    for block in _blocks(page, "sh"):
        yield from (line for line in block.text.splitlines() if re.search(r"(^|/| )retoma \w", line))
    yield from (word for word in WORD.findall(_prose(page)) if word.startswith("retoma "))


def _last_comment(block: Block) -> str:
    return block.text.rstrip().splitlines()[-1].removeprefix("# ")


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def _links(page: Path) -> Iterator[str]:
    for target in LINK.findall(_prose(page)):
        if not re.match(r"\w+:", target):
            yield target


def _anchors(page: Path) -> set[str]:
    headings = HEADING.findall(_prose(page))
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def _section(page: Path, heading: str) -> str:
    """The part of a page from a heading to the next of its level."""
    _, _, rest = page.read_text().partition(f"\n## {heading}\n")
    assert rest, f"{page.name} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def _rows(page: Path, heading: str) -> list[tuple[str, ...]]:
    """The cells of a section's table, without its head."""
    rows = [tuple(row.split(" | ")) for row in ROW.findall(_section(page, heading))]
    return [row for row in rows[1:] if not set("".join(row)) <= set("-| ")]


def _setting_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [f"RETOMA_{name.upper()}"]
    default = "" if field.default is None else f"`{field.default}`"
    return " or ".join(f"`{one}`" for one in names), default or "unset", str(field.description)
