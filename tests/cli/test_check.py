"""`retoma check`: today's code against the runs that are open."""

from __future__ import annotations

import json

from tests.cli.terminal import FILM, Terminal


def change(terminal: Terminal, *changes: tuple[str, str]) -> None:
    text = FILM
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (terminal.folder / "film.py").write_text(text)


def test_the_pipelines_are_drawn_and_open_runs_are_compatible(terminal: Terminal) -> None:
    terminal.start()
    assert terminal.out("check", "film.py").splitlines() == [
        "film",
        "  lines  <- title, scenes",
        "  image  <- each of lines  [image]",
        "  cut    <- all image",
        "",
        "ok no unfinished run would break",
    ]


def test_removing_a_step_that_open_runs_need_is_a_break(terminal: Terminal) -> None:
    run = terminal.start()
    change(terminal, ("def cut(", "def edit("))
    ended = terminal.run("check", "film.py", "-o", "json")
    assert ended.returncode == 1
    (found,) = json.loads(ended.stdout)["breaks"]
    assert (found["step"], found["runs"], found["example"]) == ("cut", 1, run)
    assert "no longer defined" in found["why"]
    assert "breaks 1 unfinished run of 'film'" in terminal.run("check", "film.py").stdout


def test_a_step_that_takes_a_result_open_runs_lack_is_a_break(terminal: Terminal) -> None:
    terminal.start()
    change(
        terminal,
        (
            "@film.step\ndef cut(",
            "@film.step\ndef music() -> str:\n    return ''\n\n\n@film.step\ndef cut(music: str, ",
        ),
    )
    ended = terminal.run("check", "film.py")
    assert ended.returncode == 1
    assert "step 'cut': runs of this version have no result of 'music', which the current code takes" in ended.stdout


def test_an_input_that_the_current_model_rejects_is_a_break(terminal: Terminal) -> None:
    terminal.start()
    change(terminal, ("    scenes: int = 2", "    scenes: int = 2\n    style: str"))
    ended = terminal.run("check", "film.py")
    assert ended.returncode == 1
    assert "rejects the inputs of these runs (style: Field required)" in ended.stdout


def test_a_step_that_now_fans_out_is_a_break(terminal: Terminal) -> None:
    terminal.start()
    change(terminal, ("@film.step\ndef cut(image: Items[str])", "@film.each(lines)\ndef cut(image: str)"))
    ended = terminal.run("check", "film.py")
    assert "step 'cut': it ran once and now runs for each of 'lines'" in ended.stdout


def test_steps_that_all_open_runs_have_passed_may_be_removed(terminal: Terminal) -> None:
    with terminal.worker("-q", "default") as worker:
        run = terminal.start()
        worker.wait_for_output("writing calm")
        while terminal.json("runs", "show", run)["steps"][1]["jobs"] != {"ready": 2}:
            pass
    change(terminal, ("def lines(", "def rows("), ("@film.each(lines", "@film.each(rows"))
    ended = terminal.run("check", "film.py")
    assert "step 'lines'" not in ended.stdout
    assert "step 'image': it ran for each of 'lines' and now runs for each of 'rows'" in ended.stdout


def test_a_pipeline_of_another_application_is_not_a_break_in_a_shared_database(terminal: Terminal) -> None:
    terminal.start()
    change(terminal, ('Pipeline("film"', 'Pipeline("movie"'))
    ended = terminal.run("check", "film.py")
    assert ended.returncode == 1
    assert "the application no longer defines this pipeline" in ended.stdout
    assert terminal.run("check", "film.py", "--shared").returncode == 0


def test_ended_runs_are_not_a_break(terminal: Terminal) -> None:
    terminal.out("runs", "cancel", terminal.start())
    change(terminal, ("def cut(", "def edit("))
    assert terminal.run("check", "film.py").returncode == 0
