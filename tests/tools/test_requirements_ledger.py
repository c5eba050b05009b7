"""The ledger's checker, run as `make check` runs it: as a program, on a page in a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TOOL = PROJECT / "tools" / "requirements_ledger.py"
GROUP_LETTERS = "VCAGS"


def check(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, project], capture_output=True, text=True, check=False)


def make_page(project: Path, *rows: str) -> None:
    """A page with the given rows, and with one open row for each group that they leave out."""
    absent = [letter for letter in GROUP_LETTERS if f"{letter}-" not in "".join(rows)]
    fillers = [f"| {letter}-001 | It works. | open |" for letter in absent]
    lines = ["| id | requirement | proof |", "|---|---|---|", *rows, *fillers]
    page = project / "docs" / "requirements.md"
    page.parent.mkdir()
    page.write_text("\n".join(lines), encoding="utf-8")


def make_test_file(project: Path, text: str) -> None:
    file = project / "tests" / "videos" / "test_stages.py"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")


def test_the_requirements_page_of_this_project_is_valid() -> None:
    outcome = check(PROJECT)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.splitlines()[-1].startswith("requirements: ")


@pytest.mark.parametrize(
    ("source", "proof"),
    [
        ("def test_draft(): ...", "tests/videos/test_stages.py::test_draft"),
        ("async def test_draft(): ...", "`tests/videos/test_stages.py::test_draft`"),
        (
            "class TestStages:\n    def test_draft(self): ...",
            "tests/videos/test_stages.py::TestStages::test_draft",
        ),
    ],
)
def test_a_row_whose_test_exists_counts_as_proved(tmp_path: Path, source: str, proof: str) -> None:
    make_test_file(tmp_path, source)
    make_page(tmp_path, f"| V-001 | A video begins as a draft. | {proof} |", "| V-002 | It ends. | open |")
    outcome = check(tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert "  videos: 2 rows, 1 proved, 1 open" in outcome.stdout
    assert "requirements: 6 rows, 1 proved, 5 open (videos 2, classifier 1," in outcome.stdout


def test_a_row_that_names_a_missing_test_fails(tmp_path: Path) -> None:
    make_test_file(tmp_path, "def test_published(): ...")
    make_page(tmp_path, "| V-001 | A video begins as a draft. | tests/videos/test_stages.py::test_draft |")
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "the proof of V-001 is 'tests/videos/test_stages.py::test_draft'" in outcome.stderr
    assert "that file has no such test" in outcome.stderr


def test_a_row_that_names_a_test_in_a_missing_file_fails(tmp_path: Path) -> None:
    make_page(tmp_path, "| V-001 | A video begins as a draft. | tests/videos/test_stages.py::test_draft |")
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "there is no such file" in outcome.stderr


def test_a_row_that_names_a_test_in_a_broken_file_fails(tmp_path: Path) -> None:
    make_test_file(tmp_path, "def test_draft(:")
    make_page(tmp_path, "| V-001 | A video begins as a draft. | tests/videos/test_stages.py::test_draft |")
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "that file is not valid Python (line 1)" in outcome.stderr


def test_a_test_mentioned_only_in_a_comment_does_not_count(tmp_path: Path) -> None:
    make_test_file(tmp_path, "# def test_draft(): ...")
    make_page(tmp_path, "| V-001 | A video begins as a draft. | tests/videos/test_stages.py::test_draft |")
    assert check(tmp_path).returncode == 1


def test_a_repeated_id_fails(tmp_path: Path) -> None:
    make_page(tmp_path, "| V-001 | A video begins. | open |", "| V-001 | A video ends. | open |")
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "Line 4: V-001 is already on line 3; each id is used once." in outcome.stderr


def test_a_number_that_was_left_out_fails(tmp_path: Path) -> None:
    make_page(tmp_path, "| V-001 | A video begins. | open |", "| V-003 | A video ends. | open |")
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "V-002 is missing" in outcome.stderr


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("| V-001 | A video begins. |", "this one has 2"),
        ("| V-001 | A video begins | or ends. | open |", "this one has 4"),
        ("V-001 | A video begins. | open |", "begins and ends with `|`"),
        ("| V-001 | | open |", "V-001 says nothing"),
        ("| V-1 | A video begins. | open |", "'V-1' is no id"),
        ("| X-001 | A video begins. | open |", "'X-001' is no id"),
        ("| V-001 | A video begins. | done |", "the proof of V-001 is 'done'"),
        ("| V-001 | A video begins. | src/videos.py::test_draft |", "a proof is `open` or"),
    ],
)
def test_a_malformed_row_fails_with_a_sentence_that_says_why(tmp_path: Path, row: str, sentence: str) -> None:
    make_page(tmp_path, row)
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "Line 3: " in outcome.stderr
    assert sentence in outcome.stderr


def test_all_faults_of_a_page_are_reported_at_once(tmp_path: Path) -> None:
    make_page(
        tmp_path,
        "| V-001 | A video begins. |",
        "| C-001 | A batch begins. | soon |",
        "| G-002 | A job. | open |",
    )
    outcome = check(tmp_path)
    assert "has 4 fault(s)" in outcome.stderr


def test_a_project_without_the_page_fails(tmp_path: Path) -> None:
    outcome = check(tmp_path)
    assert outcome.returncode == 1
    assert "There is no docs/requirements.md" in outcome.stderr
