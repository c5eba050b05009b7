"""Files below RETOMA_HOME are readable only by their owner."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from retoma import private_files
from retoma.files import FileSettings, create_file_store
from tests.system_packages import require

FOLDER = 0o711 if os.geteuid() == 0 else 0o700  # the account of the embedded database passes through root's


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def wide_umask() -> Iterator[None]:
    previous = os.umask(0o022)
    yield
    os.umask(previous)


def test_a_new_home_is_private(tmp_path: Path) -> None:
    assert mode(private_files.create_home(tmp_path / "home")) == FOLDER


def test_a_home_that_others_could_read_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "files").mkdir(parents=True, mode=0o755)
    (home / "notes").write_text("x")
    private_files.create_home(home)
    assert [mode(home), mode(home / "files"), mode(home / "notes")] == [FOLDER, 0o700, 0o600]


@pytest.mark.parametrize("before", [0o755, 0o711])
def test_old_files_cannot_be_read_by_their_path(before: int) -> None:
    require(os.geteuid() == 0, "root, to be another account")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        old = [Path(place, "home", name, "a", "document") for name in ("files", "renders")]
        for file in old:
            file.parent.mkdir(parents=True)
            file.write_text("customer")
            file.parents[1].chmod(before)
        assert [read_as_nobody(file) for file in old] == ["customer", "customer"]
        private_files.create_home(Path(place, "home"))
        assert [read_as_nobody(file) for file in old] == ["", ""]


def read_as_nobody(file: Path) -> str:
    return subprocess.run(
        ["cat", file], user=65534, group=65534, extra_groups=[], cwd="/", stdout=subprocess.PIPE, text=True
    ).stdout


def test_a_folder_that_is_shared_by_design_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    private_files.create_home(tmp_path)
    assert mode(tmp_path) == 0o1777


def test_the_target_of_a_link_in_the_home_is_not_changed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(outside)
    private_files.create_home(tmp_path / "home")
    assert mode(outside) == 0o755


async def test_files_that_are_kept_are_private(tmp_path: Path) -> None:
    files = create_file_store(FileSettings(_env_file=None, home=tmp_path / "home"))
    saved = await files.save(b"a document", name="a.txt")
    path = await files.get_path(saved)
    assert [mode(path), mode(tmp_path / "home" / "files")] == [0o600, 0o700]
    (tmp_path / "clip").write_bytes(b"video")
    await files.put(tmp_path / "clip", "gpu/1/clip.mp4")
    assert mode(tmp_path / "home" / "files" / "gpu" / "1" / "clip.mp4") == 0o600
