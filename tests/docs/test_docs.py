"""The documentation is correct: its code runs, its links resolve, its tables match the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
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
from retoma.define.webhook import ENDED, EVENTS
from retoma.errors import RetomaError, WorkerGone
from retoma.files import FileSettings
from retoma.records import ROLE_SCOPES
from retoma.settings import Settings
from retoma.states import DELIVERY_TRANSITIONS, JOB_TRANSITIONS, REVIEW_TRANSITIONS, RUN_TRANSITIONS
from retoma.store.database import Database

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RETOMA = ROOT / "src" / "retoma"
REFERENCE = DOCS / "reference"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")} - {DOCS / "requirements.md"})

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```\w+ file ", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (.+) \|$(?!\n\| ?-)", re.MULTILINE)  # not the head of a table
WORD = re.compile(r"`([^`]+)`")
PATH = re.compile(
    r"(?<![\w./-])(?:(?:src|tools|bench|standins|tests|examples|requirements|wordpress)/[\w./-]+\w|deploy/[\w./-]+\.\w+)"
)
PROBLEM = re.compile(r'Problem\(\s*(\d{3}),\s*"(\w+)"')

GROUPS = (
    *("backup", "db", "runs", "reviews", "bulk", "schedules", "config", "deliveries", "notifications", "endpoints"),
    *("webhooks", "keys", "people", "audit", "workers", "queues", "pools", "prices", "retention", "tenants", "budgets"),
    "connections",
)
# Codes of effects and of polls, a mark for a join, and variables of the environment.
NOT_JOB_CODES = {"JOB_ENDED", "LOOK_FAILED", "TOO_LARGE", "HOME", "LANG", "LC_ALL", "PATH", "SC_CLK_TCK", "TMPDIR"}
TRANSITIONS: dict[str, Any] = {
    "Jobs": JOB_TRANSITIONS,
    "Runs": RUN_TRANSITIONS,
    "Reviews": REVIEW_TRANSITIONS,
    "Deliveries": DELIVERY_TRANSITIONS,
}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    """`mark` is what follows the language: `run` blocks are run, `raises` blocks end with the error they raise, and
    `file PATH` blocks are written to that file."""

    language: str
    mark: str
    text: str


@every_page
async def test_the_python_code_of_a_page_works(page: Path) -> None:
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


def test_a_page_that_says_that_every_block_is_run_has_no_other_blocks() -> None:
    pages = [page for page in PAGES if "run every block" in page.read_text()]
    assert pages
    assert [(page.name, block.text) for page in pages for block in _blocks(page, "python") if not block.mark] == []


@pytest.mark.parametrize("page", [page for page in PAGES if FILE.search(page.read_text())], ids=lambda page: page.stem)
def test_the_files_of_a_page_pass_its_tests(page: Path, tmp_path: Path) -> None:
    """A page that changes Retoma changes a copy of it."""
    for folder in ("src", "standins"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "environment.py", tmp_path / "tests")
    for block in _blocks(page):
        if block.mark.startswith("file "):
            _write(block, tmp_path / block.mark.removeprefix("file "))
    tests = [*tmp_path.glob("test_*.py"), *(tmp_path / "tests").rglob("test_*.py")]
    assert tests
    paths = os.pathsep.join([str(tmp_path), str(tmp_path / "src")])
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider", *tests],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout


@every_page
def test_every_link_of_a_page_resolves(page: Path) -> None:
    for target in _links(page):
        path, _, anchor = target.partition("#")
        leads_to = (page.parent / path).resolve() if path else page
        assert leads_to.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(leads_to), f"{page.name} links to {target}, which has no such heading"


def test_every_page_is_reachable_from_the_index() -> None:
    listed = {(DOCS / target).resolve() for target in _links(DOCS / "README.md")}
    assert set(DOCS.rglob("*.md")) - {DOCS / "README.md"} <= listed


def test_the_program_of_the_readme_is_the_quickstart_example() -> None:
    program, _, _ = (ROOT / "examples" / "quickstart.py").read_text().partition("\n# prints: ")
    assert [block.text for block in _blocks(ROOT / "README.md", "python")] == [program]


def test_the_program_of_the_readme_has_at_most_twenty_lines() -> None:
    (program,) = _blocks(ROOT / "README.md", "python")
    assert len([line for line in program.text.splitlines() if line.strip()]) <= 20


def test_contributing_lists_the_make_targets() -> None:
    offered = set(re.findall(r"@echo 'make (\w+)", (ROOT / "Makefile").read_text()))
    listed = {
        name
        for block in _blocks(ROOT / "CONTRIBUTING.md", "sh")
        for name in re.findall(r"^make (\w+)", block.text, re.MULTILINE)
    }
    assert listed == offered


def test_the_page_of_errors_names_every_error() -> None:
    """The errors of the engine itself never leave it."""
    text = (REFERENCE / "errors.md").read_text()
    raised = {
        name
        for name, kind in inspect.getmembers(retoma.errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == "retoma.errors"
    } - {"UnreadableError", "WorkerGone"}
    assert {name for name in raised if f"`{name}`" not in text} == set()
    assert raised - _public_modules()["retoma.errors"] == set()


def test_the_error_table_matches_the_code() -> None:
    named = [WORD.findall(row[0])[0] for row in _rows(REFERENCE / "errors.md")]
    assert sorted(named) == sorted(error.__name__ for error in RetomaError.__subclasses__() if error is not WorkerGone)


def test_the_api_error_table_lists_every_error_of_the_server() -> None:
    """Forms are those of pages, whose errors are pages too."""
    listed = {(row[0], code) for row in _rows(DOCS / "api.md", "Errors") for code in WORD.findall(row[1])}
    places = (ROOT / "src" / "retoma" / "server", ROOT / "src" / "retoma" / "cli")
    source = "".join(file.read_text() for place in places for file in place.rglob("*.py"))
    answered = {each for each in PROBLEM.findall(source) if "FORM" not in each[1]}
    assert listed == answered | {("422", "UNSAFE_URL")}


def test_the_page_of_an_application_lists_its_own_error_codes() -> None:
    common = {code for row in _rows(DOCS / "api.md", "Errors") for code in WORD.findall(row[1])}
    for folder in sorted(each for each in (ROOT / "src" / "retoma_apps").iterdir() if each.name != "providers"):
        source = "".join(file.read_text() for file in folder.rglob("*.py"))
        own = {each for each in PROBLEM.findall(source) if each[1] not in common}
        page = DOCS / "applications" / f"{folder.name}.md"
        listed = {(row[0], *WORD.findall(row[1])) for row in _rows(page, "Error codes")} if own else set()
        assert listed == own, folder.name


def test_the_readme_in_portuguese_has_the_same_code_links_and_headings() -> None:
    english, portuguese = ROOT / "README.md", ROOT / "README.pt-BR.md"
    assert [_code(block) for block in _blocks(english)] == [_code(block) for block in _blocks(portuguese)]
    swapped = {"README.pt-BR.md": "README.md"}
    assert [swapped.get(link, link) for link in _links(english)] == list(_links(portuguese))
    assert len(HEADING.findall(_prose(english))) == len(HEADING.findall(_prose(portuguese)))


def test_the_settings_table_matches_the_code() -> None:
    rows = _rows(REFERENCE / "settings.md")
    assert rows == [_setting_row(name, field) for name, field in Settings.model_fields.items()]


def test_every_variable_that_the_code_names_is_on_the_page_of_settings() -> None:
    """`retoma dev` passes the internal ones to the process that replaces it."""
    internal = {"RETOMA_DEV_PORT", "RETOMA_DEV_TOKEN", "RETOMA_ADMIN_PASSWORD_HASH"}
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    fields = {f"RETOMA_{name.upper()}" for kind in (Settings, FileSettings) for name in kind.model_fields}
    named = {name for source in sources for name in re.findall(r"(?<![A-Z_])RETOMA_[A-Z_]*[A-Z]\b", source)}
    text = (REFERENCE / "settings.md").read_text()
    assert {name for name in (named | fields) - internal if f"`{name}`" not in text} == set()


@pytest.mark.parametrize(("heading", "moves"), TRANSITIONS.items())
def test_the_transition_tables_match_the_code(heading: str, moves: dict[Any, frozenset[Any]]) -> None:
    rows = _rows(DOCS / "state-machines.md", heading)
    listed = [move for before, after, _ in rows for move in product(WORD.findall(before), WORD.findall(after))]
    assert sorted(listed) == sorted((before, after) for before in moves for after in moves[before])


@pytest.mark.parametrize(("heading", "moves"), TRANSITIONS.items())
def test_every_arrow_of_the_diagrams_is_a_permitted_transition(heading: str, moves: dict[Any, frozenset[Any]]) -> None:
    arrows = re.findall(r"(\w+) --> (\w+)", _section(DOCS / "state-machines.md", heading))
    assert arrows
    assert all(after in moves[before] for before, after in arrows)


@pytest.mark.parametrize(("heading", "moves"), TRANSITIONS.items())
def test_every_state_is_in_its_diagram(heading: str, moves: dict[Any, frozenset[Any]]) -> None:
    arrows = re.findall(r"(\w+) --> (\w+)", _section(DOCS / "state-machines.md", heading))
    assert {state for arrow in arrows for state in arrow} == set(moves)


def test_the_table_of_webhook_events_matches_the_code() -> None:
    listed = [event for row in _rows(DOCS / "webhooks.md", "Events") for event in WORD.findall(row[0])]
    assert sorted([*listed, ENDED]) == sorted(EVENTS)


def test_the_options_table_matches_the_code() -> None:
    options = [WORD.findall(row[0])[0] for row in _rows(REFERENCE / "step-options.md")]
    assert sorted(options) == sorted([*StepOptions.__annotations__, "key"])
    only_for_joins = StepOptions.__annotations__.keys() - EachOptions.__annotations__.keys()
    assert only_for_joins == {"proceed_when"}


def test_every_table_is_on_the_page_of_the_data_model() -> None:
    migrations = "".join(path.read_text() for path in (ROOT / "src/retoma/store/migrations").glob("*.sql"))
    created = re.findall(r"^create table retoma\.(\w+)", migrations, re.MULTILINE)
    listed = [name for row in _rows(DOCS / "architecture/data-model.md") for name in WORD.findall(row[1])]
    assert sorted(set(created) - set(listed)) == [], "name these tables in docs/architecture/data-model.md"


def test_every_failure_code_on_the_page_exists_in_the_code() -> None:
    codes = [WORD.findall(row[0])[0] for row in _rows(REFERENCE / "job-codes.md")]
    sources = [path.read_text() for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".sql")]
    unknown = [code for code in codes if not any(f"{quote}{code}{quote}" in s for s in sources for quote in "'\"")]
    assert codes
    assert unknown == []


def test_every_code_that_the_engine_gives_a_job_is_on_the_page() -> None:
    places = [RETOMA / "errors.py", *(RETOMA / "worker").glob("*.py"), *(RETOMA / "store/sql/functions").glob("*.sql")]
    given = {code for path in places for code in re.findall(r"""["']([A-Z][A-Z_]{3,})["']""", path.read_text())}
    listed = {code for row in _rows(REFERENCE / "job-codes.md") for code in WORD.findall(row[0])}
    assert given - listed == NOT_JOB_CODES


def test_the_layer_table_matches_the_import_linter_contract() -> None:
    """The linter's list is exhaustive: it is refused if a part of the package is missing."""
    rows = [sorted(WORD.findall(row[0])) for row in _rows(DOCS / "architecture.md", "Layers")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["retoma"]]
    assert rows == [sorted(_part(name) for name in layer.split(" | ")) for layer in layers]


def test_the_page_of_the_client_lists_every_namespace() -> None:
    introduction, _, _ = (REFERENCE / "python-client.md").read_text().partition("\n## ")
    client = Client(None, cast(Database, None))
    namespaces = {name for name in vars(client) if not name.startswith("_")}
    assert set(re.findall(r"`client\.(\w+)`", introduction)) == namespaces


def test_the_client_table_lists_every_method() -> None:
    named = [word for row in _rows(REFERENCE / "python-client.md") for word in re.findall(r"`([\w.]+)\(", row[0])]
    assert sorted(named) == sorted(_client_methods())


def test_the_client_table_names_parameters_as_the_code_does() -> None:
    client: Any = Client(None, cast(Database, None))
    unknown = [
        f"{call}({name})"
        for row in _rows(REFERENCE / "python-client.md")
        for call, listed in re.findall(r"`([\w.]+)\((.*?)\)`", row[0])
        for name in re.findall(r"\w+", listed)
        if name not in inspect.signature(attrgetter(call)(client)).parameters
    ]
    assert unknown == []


def test_the_command_table_names_arguments_as_the_code_does() -> None:
    wrong = {}
    for line in (WORD.findall(row[0])[0] for row in _rows(REFERENCE / "commands.md")):
        command: Any = get_command(tree)
        for word in _command(line):
            command = command.commands[word]
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        accepted = [word for each in arguments for word in (each.metavar or each.name.upper()).split()]
        if re.findall(r"[A-Z][A-Z_=]*", line) != accepted:
            wrong[line] = accepted
    assert wrong == {}


def test_the_command_table_matches_the_code() -> None:
    listed = [tuple(_command(WORD.findall(row[0])[0])) for row in _rows(REFERENCE / "commands.md")]
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
    written = {block.mark.removeprefix("file ") for block in _blocks(page)}
    for path in PATH.findall(page.read_text()):
        assert path in written or (ROOT / path).exists(), f"{page.name} names {path}, which does not exist"


def test_the_table_of_modules_names_what_they_offer() -> None:
    modules = _public_modules()
    for name, names in modules.items():
        module = importlib.import_module(name)
        assert names == set(getattr(module, "__all__", names)), name
        assert {each for each in names if not hasattr(module, each)} == set(), name
    assert len(modules["retoma"]) <= 25


@pytest.mark.parametrize("folder", ["src/retoma_apps", "examples", "standins"])
def test_applications_and_examples_import_public_names_only(folder: str) -> None:
    public = _public_modules()
    found = [
        f"{file.relative_to(ROOT)}: {module}.{name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for module, name in _imports_of_retoma(file)
        if name not in public.get(module, ()) and f"{module}.{name}" not in public
    ]
    assert found == []


def _public_modules() -> dict[str, set[str]]:
    """By module, the names on the page."""
    rows = [row.split(" | ") for row in ROW.findall((REFERENCE / "python-modules.md").read_text())]
    return {WORD.findall(module)[0]: set(WORD.findall(names)) for module, _, names in rows}


def _imports_of_retoma(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "retoma":
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            # This hides the names that are used.
            yield from ((each.name, "*") for each in node.names if each.name.split(".")[0] == "retoma")


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


def _write(block: Block, path: Path) -> None:
    """A `diff` block changes one place of the file; others are the whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if block.language != "diff":
        path.write_text(block.text)
        return
    lines = block.text.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} does not have this once: {before}"
    path.write_text(text.replace(before, after))


async def _run(code: Any, names: dict[str, Any]) -> None:
    ended = eval(code, names)
    if inspect.iscoroutine(ended):
        await ended


def _blocks(page: Path, language: str | None = None) -> Iterator[Block]:
    for name, mark, text in FENCE.findall(page.read_text()):
        if language in (None, name):
            yield Block(name, mark.strip(), text)


def _code(block: Block) -> list[str]:
    """Return commands without comments of shell blocks and without program output."""
    lines = [] if block.language == "text" else block.text.splitlines()
    return [re.sub(r"\s*# .*", "", line) if block.language == "sh" else line for line in lines]


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, as the words that follow `retoma`."""
    if not hasattr(command, "commands"):
        yield path
        return
    if command.invoke_without_command:
        yield path
    for name, one in command.commands.items():
        if not one.hidden:
            yield from _commands(one, (*path, name))


def _command(line: str) -> Iterator[str]:
    """Return the words of a command line that identify the command."""
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


def _rows(page: Path, heading: str | None = None) -> list[tuple[str, ...]]:
    """Return the cells of the tables of a page, or of one section of it, without their heads."""
    text = page.read_text() if heading is None else _section(page, heading)
    rows = [tuple(row.split(" | ")) for row in ROW.findall(text)]
    return [row for row in rows if not set("".join(row)) <= set("-| ")]


def _setting_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias
    names = alias.choices if isinstance(alias, AliasChoices) else [f"RETOMA_{name.upper()}"]
    default = "" if field.default is None else f"`{field.default}`"
    return " or ".join(f"`{one}`" for one in names), default or "unset", str(field.description)


def test_the_table_of_roles_matches_the_code() -> None:
    listed = {
        WORD.findall(row[0])[0]: (set(re.findall(r"`([\w:]+)`", row[1])), set(re.findall(r"`([\w:]+)`", row[2])))
        for row in _rows(DOCS / "people.md", "Roles")
    }
    assert listed == {
        str(role): (set(scopes.in_tenant), set(scopes.in_all_tenants)) for role, scopes in ROLE_SCOPES.items()
    }
