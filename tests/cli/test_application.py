"""Locating the application and reporting mistakes in it."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.cli.terminal import FILM, Terminal


@pytest.mark.parametrize("place", ["film", "film:app", "film:film", "film.py", "./film.py:film"])
def test_an_application_is_a_module_or_a_file(terminal: Terminal, place: str) -> None:
    assert "cut    <- all image" in terminal.out("check", place, "--offline")


def test_without_an_argument_the_application_comes_from_the_settings(terminal: Terminal) -> None:
    missing = terminal.run("check", "--offline")
    assert missing.returncode == 2
    assert "no application given" in missing.stderr
    (terminal.folder / "retoma.toml").write_text('app = "film.py"')
    assert "film\n" in terminal.out("check", "--offline")


@pytest.mark.parametrize(
    ("place", "code", "sentence"),
    [
        ("flim.py", 3, "file 'flim.py' not found; did you mean 'film.py'?"),
        ("flim", 3, "cannot import 'flim': No module named 'flim'; did you mean 'film'?"),
        ("retoma_apps.video", 3, "No module named 'retoma_apps.video'; did you mean 'retoma_apps.videos'?"),
        ("film.py:flm", 3, "'film.py' has no 'flm'; did you mean 'film'?"),
        ("film.py:Brief", 3, "'Brief' in 'film.py' is neither an App nor a Pipeline"),
        ("empty.py", 3, "'empty.py' defines no App and no Pipeline"),
        ("two.py", 3, "'two.py' has several Pipelines and none is named 'app': name one, such as two.py:one"),
        ("broken.py", 1, "NameError: name 'nothing' is not defined"),
        ("syntax.py", 1, "SyntaxError"),
        ("lacks.py", 1, "No module named 'not_installed'"),
        ("mistake.py", 1, "pipeline 'film', step 'cut': "),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_with_its_location(
    terminal: Terminal, place: str, code: int, sentence: str
) -> None:
    files = {
        "empty.py": "",
        "two.py": "from retoma import Pipeline\none, two = Pipeline('one'), Pipeline('two')\n",
        "broken.py": "\nnothing\n",
        "syntax.py": "\ndef\n",
        "lacks.py": "\nimport not_installed\n",
        "mistake.py": FILM.replace("image: Items", "imgae: Items"),
    }
    for name, text in files.items():
        (terminal.folder / name).write_text(text)
    ended = terminal.run("check", place, "--offline")
    assert ended.returncode == code
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    if code == 1:
        assert f"{terminal.folder / place}:" in ended.stderr


def test_the_traceback_is_available_on_request(terminal: Terminal) -> None:
    (terminal.folder / "broken.py").write_text("\nnothing\n")
    terminal.variables["RETOMA_DEBUG"] = "1"
    assert "Traceback" in terminal.run("check", "broken.py", "--offline").stderr


def test_the_version_is_printed_without_a_command(terminal: Terminal) -> None:
    assert terminal.out("--version") == f"{version('retoma')}\n"
