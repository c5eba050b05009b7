from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from retoma_apps.media.temp_dir import PREFIX, temp_dir


@pytest.fixture(autouse=True)
def temp_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(folder: Path) -> Path:
    os.utime(folder, (0, 0))
    return folder


def test_a_temporary_folder_is_removed_after_use(temp_root: Path) -> None:
    with temp_dir("film") as room:
        (room / "film.mp4").write_text("x")
    assert list(temp_root.iterdir()) == []


def test_folders_of_killed_processes_are_deleted_and_others_are_kept(temp_root: Path) -> None:
    left, new = temp_root / f"{PREFIX}left", temp_root / f"{PREFIX}new"
    for folder in (left, new):
        folder.mkdir()
        (folder / "film.mp4").write_text("x")
    with temp_dir("film") as used:
        make_old(left)
        make_old(used)
        with temp_dir("film") as other:
            assert set(temp_root.iterdir()) == {new, used, other}


def test_a_symlink_in_place_of_a_temporary_folder_deletes_nothing(temp_root: Path) -> None:
    kept = temp_root / "kept"
    kept.mkdir()
    (temp_root / f"{PREFIX}link").symlink_to(kept)
    make_old(kept)
    with temp_dir("film"):
        assert kept.is_dir()
