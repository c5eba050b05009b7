"""Functions are named after what they do. A bare participle names a value or a state."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "standins")
IRREGULAR = {
    *("begun", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "fallen", "felt", "found", "given"),
    *("gone", "grown", "heard", "held", "hidden", "kept", "known", "left", "lost", "made", "meant", "met", "paid"),
    *("said", "seen", "sent", "shown", "sold", "spent", "spoken", "taken", "thought", "told", "written"),
}
VERBS = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
VALUES = {"property", "cached_property"}
STEP = re.compile(r"\w+\.(step|each)\b")  # a step is named after its result
FUNCTION = re.compile(r"\bfunction (\w+)|\bconst (\w+) = (?:async )?(?:\([^)]*\)|\w+) =>")


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.islower() and word.endswith("ed") and word not in VERBS)


def list_python_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if not any(each in VALUES or STEP.match(each) for each in decorators):
                yield node.name


def list_script_functions(path: Path) -> Iterator[str]:
    for declared, assigned in FUNCTION.findall(path.read_text()):
        yield declared or assigned


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_told", True),
        ("counted", True),
        ("list_failed", False),
        ("feed", False),
        ("isChanged", False),
        ("read", False),
    ],
)
def test_a_bare_participle_is_recognised(name: str, expected: bool) -> None:
    assert is_bare_participle(name) is expected


@pytest.mark.parametrize(("suffix", "list_functions"), [("py", list_python_functions), ("js", list_script_functions)])
def test_no_function_is_named_by_a_bare_participle(
    suffix: str, list_functions: Callable[[Path], Iterator[str]]
) -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))]
    found = {str(path.relative_to(ROOT)): list(list_functions(path)) for path in paths}
    assert any(found.values())
    assert [f"{path}: {name}" for path, names in found.items() for name in names if is_bare_participle(name)] == []
