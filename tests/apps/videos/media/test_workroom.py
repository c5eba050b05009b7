from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from retoma_apps.videos.media.workroom import PREFIX, workroom


@pytest.fixture(autouse=True)
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    os.utime(folder, (0, 0))
    return folder


def test_a_workroom_is_gone_when_its_work_is_done(rooms: Path) -> None:
    with workroom("film") as room:
        (room / "film.mp4").write_text("x")
    assert list(rooms.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_away_and_what_is_in_use_or_new_stays(rooms: Path) -> None:
    left, new = rooms / f"{PREFIX}left", rooms / f"{PREFIX}new"
    for folder in (left, new):
        folder.mkdir()
        (folder / "film.mp4").write_text("x")
    with workroom("film") as used:
        aged(left)
        aged(used)
        with workroom("film") as other:
            assert set(rooms.iterdir()) == {new, used, other}


def test_a_link_in_the_place_of_a_workroom_leads_to_nothing_being_lost(rooms: Path) -> None:
    kept = rooms / "kept"
    kept.mkdir()
    (rooms / f"{PREFIX}link").symlink_to(kept)
    aged(kept)
    with workroom("film"):
        assert kept.is_dir()
