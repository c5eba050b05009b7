"""Check `docs/requirements.md` and count its rows.

    python tools/requirements_ledger.py [project folder]

Exit code 1, with one sentence for each fault, when an id is repeated or missing, a row is malformed,
or a row names a test that does not exist.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GROUPS = {"V": "videos", "C": "classifier", "A": "autowriter", "G": "gpu", "S": "stories"}
PAGE = Path("docs/requirements.md")
ROW = re.compile(r"\s*(\||[A-Z]-\d)")
HEADING = re.compile(r"\|\s*id\s*\|\s*requirement\s*\|\s*proof\s*\||\|(-+\|){3}")
ID = re.compile(rf"([{''.join(GROUPS)}])-(\d{{3,}})")
PROOF = re.compile(r"(tests/(?:[\w-]+/)*test_\w+\.py)::((?:\w+::)*test_\w+)")


class RowError(ValueError):
    """A line of the page that is no row; its text is the sentence for the reader."""


@dataclass(frozen=True)
class Row:
    id: str
    group: str
    number: int
    proof: str
    line: int

    @property
    def is_open(self) -> bool:
        return self.proof == "open"


def main() -> int:
    project = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    page = project / PAGE
    if not page.is_file():
        print(f"There is no {PAGE} in {project}.", file=sys.stderr)
        return 1
    rows, faults = read_rows(page.read_text(encoding="utf-8"))
    faults += [*find_id_faults(rows), *find_proof_faults(rows, project)]
    if faults:
        print(f"{PAGE} has {len(faults)} fault(s):", *faults, sep="\n  ", file=sys.stderr)
        return 1
    print(format_summary(rows))
    return 0


def read_rows(text: str) -> tuple[list[Row], list[str]]:
    """The rows of a page, and a sentence for each line that looks like a row and is none."""
    rows: list[Row] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not ROW.match(line) or HEADING.fullmatch(line.strip()):
            continue
        try:
            rows.append(parse_row(line.strip(), number))
        except RowError as fault:
            faults.append(f"Line {number}: {fault}")
    return rows, faults


def parse_row(line: str, number: int) -> Row:
    if not (line.startswith("|") and line.endswith("|")):
        raise RowError("a row begins and ends with `|`.")
    cells = [cell.strip() for cell in line[1:-1].split("|")]
    if len(cells) != 3:
        raise RowError(f"a row has three cells (id, requirement, proof), this one has {len(cells)}.")
    name, requirement, proof = cells[0], cells[1], cells[2].strip("`")
    matched = ID.fullmatch(name)
    if not matched:
        raise RowError(f"{name!r} is no id such as `V-001`; the letters are {', '.join(GROUPS)}.")
    if not requirement:
        raise RowError(f"{name} says nothing.")
    return Row(name, GROUPS[matched[1]], int(matched[2]), proof, number)


def find_id_faults(rows: list[Row]) -> Iterator[str]:
    lines: dict[str, int] = {}
    for row in rows:
        if row.id in lines:
            yield f"Line {row.line}: {row.id} is already on line {lines[row.id]}; each id is used once."
        lines.setdefault(row.id, row.line)
    for letter, group in GROUPS.items():
        numbers = {row.number for row in rows if row.group == group}
        if not numbers:
            yield f"The group {group} has no row."
        for missing in sorted(set(range(1, max(numbers, default=0))) - numbers):
            yield f"{letter}-{missing:03} is missing; the ids of {group} are consecutive from {letter}-001."


def find_proof_faults(rows: list[Row], project: Path) -> Iterator[str]:
    for row in rows:
        fault = None if row.is_open else find_proof_fault(row.proof, project)
        if fault:
            yield f"Line {row.line}: the proof of {row.id} is {row.proof!r}, but {fault}."


def find_proof_fault(proof: str, project: Path) -> str | None:
    matched = PROOF.fullmatch(proof)
    if not matched:
        return "a proof is `open` or `tests/path/test_file.py::test_name`"
    file, test = project / matched[1], matched[2]
    if not file.is_file():
        return "there is no such file"
    try:
        return None if test in list_tests(file) else "that file has no such test"
    except SyntaxError as error:
        return f"that file is not valid Python (line {error.lineno})"


@cache
def list_tests(file: Path) -> frozenset[str]:
    """The functions of a file as pytest names them: `test_name`, or `TestClass::test_name`."""
    return frozenset(_functions(ast.parse(file.read_text(encoding="utf-8")).body))


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}::")


def format_summary(rows: list[Row]) -> str:
    per_group = Counter(row.group for row in rows)
    lines = [f"  {group}: {_count([row for row in rows if row.group == group])}" for group in GROUPS.values()]
    groups = ", ".join(f"{group} {per_group[group]}" for group in GROUPS.values())
    return "\n".join([*lines, f"requirements: {_count(rows)} ({groups})"])


def _count(rows: list[Row]) -> str:
    still_open = sum(row.is_open for row in rows)
    return f"{len(rows)} rows, {len(rows) - still_open} proved, {still_open} open"


if __name__ == "__main__":
    sys.exit(main())
