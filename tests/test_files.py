from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest
from obstore.store import MemoryStore
from pydantic import ValidationError

from retoma import File
from retoma.define.file import find_files
from retoma.errors import TooLarge
from retoma.files import FileSettings, FileStore, OpenedFile, create_file_store
from tests.full_disk import files_of_at_most

ABC = sha256(b"abc").hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return create_file_store(FileSettings(_env_file=None, home=tmp_path))


async def parts(*values: bytes) -> AsyncIterator[bytes]:
    for part in values:
        yield part


def list_kept(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def test_a_file_is_named_by_its_content(files: FileStore) -> None:
    saved = await files.save(parts(b"a", b"", b"bc"), name="pasta/ofício.pdf")
    assert saved == File(file=ABC, name="pasta/ofício.pdf", size=3, media_type="application/pdf")
    assert await files.load(saved) == b"abc"
    opened = await files.open_file(saved)
    assert opened is not None
    assert (opened.size, b"".join([chunk async for chunk in opened.chunks])) == (3, b"abc")


async def test_the_same_content_is_stored_once_under_any_name(files: FileStore, tmp_path: Path) -> None:
    first, second = await files.save(b"abc", name="a"), await files.save(parts(b"abc"), name="b")
    assert first.file == second.file
    assert list_kept(tmp_path) == [ABC]


async def test_content_over_the_limit_is_neither_read_nor_stored(files: FileStore, tmp_path: Path) -> None:
    read = 0

    async def much() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b"0" * 100

    with pytest.raises(TooLarge, match="more than 250 bytes"):
        await files.save(much(), max_bytes=250)
    assert read == 3
    assert list_kept(tmp_path) == []
    assert (await files.save(b"0" * 250, max_bytes=250)).size == 250


async def test_a_disk_that_is_full_keeps_no_part_of_a_file(files: FileStore, tmp_path: Path) -> None:
    content = b"0" * 6_000_000
    with files_of_at_most(5_000_000), pytest.raises(Exception, match="File too large"):
        await files.save(content)
    assert list_kept(tmp_path) == []
    assert await files.has(await files.save(content))


async def test_a_file_is_available_only_with_its_declared_length(files: FileStore) -> None:
    saved = await files.save(b"abc")
    assert await files.has(saved)
    assert not await files.has(saved.model_copy(update={"size": 4}))
    assert not await files.has(File(file="0" * 64, size=3))


async def test_a_missing_file_is_reported(files: FileStore) -> None:
    missing = File(file="0" * 64)
    assert await files.open_file(missing) is None
    with pytest.raises(FileNotFoundError):
        await files.load(missing)
    with pytest.raises(FileNotFoundError, match="no file with the digest 000"):
        await files.get_path(missing)


async def test_the_path_of_a_local_file_is_the_file_itself(files: FileStore, tmp_path: Path) -> None:
    path = await files.get_path(await files.save(b"abc", name="../../etc/passwd"))
    assert path == tmp_path / "files" / "content" / ABC[:2] / ABC
    assert path.read_bytes() == b"abc"


async def test_a_file_of_a_bucket_is_fetched_once(tmp_path: Path) -> None:
    store = MemoryStore()
    files = FileStore(store, None, tmp_path)
    saved = await files.save(b"abc")
    path = await files.get_path(saved)
    assert path.read_bytes() == b"abc"
    store.delete(f"content/{ABC[:2]}/{ABC}")
    assert await files.get_path(saved) == path
    assert list_kept(tmp_path) == [ABC]


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * 3_600
    os.utime(path, (then, then))


async def test_the_least_recently_used_copies_are_evicted(tmp_path: Path) -> None:
    store = MemoryStore()
    old, older, used = [await FileStore(store, None, tmp_path).save(each * 100) for each in (b"1", b"2", b"3")]

    async def path_of(file: File) -> Path:
        return await FileStore(store, None, tmp_path, cache_bytes=250).get_path(file)

    for hours, file in ((3, old), (4, older), (5, used)):
        age(await path_of(file), hours)
    await path_of(used)
    new = await FileStore(store, None, tmp_path).save(b"new" * 30)
    await path_of(new)
    assert set(list_kept(tmp_path)) == {used.file, new.file}
    assert (await path_of(older)).read_bytes() == b"2" * 100


async def test_no_copy_used_within_the_last_hour_is_evicted(tmp_path: Path) -> None:
    files = FileStore(MemoryStore(), None, tmp_path, cache_bytes=0)
    paths = [await files.get_path(await files.save(each)) for each in (b"1", b"2", b"3")]
    assert all(path.exists() for path in paths)


async def test_an_incomplete_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FileStore(MemoryStore(), None, tmp_path)
    saved = await files.save(b"abc")

    async def cut(file: File) -> OpenedFile:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"a"
            assert len(list_kept(tmp_path)) == 1, "it is written part by part"
            raise ConnectionError("cut")

        return OpenedFile(file.size, file.media_type, chunks())

    monkeypatch.setattr(files, "open_file", cut)
    with pytest.raises(ConnectionError):
        await files.get_path(saved)
    assert list_kept(tmp_path) == []


async def test_a_large_file_passes_through(files: FileStore) -> None:
    saved = await files.save(parts(*[bytes([number]) * 700_000 for number in range(3)]))
    assert await files.load(saved) == b"\0" * 700_000 + b"\1" * 700_000 + b"\2" * 700_000


@pytest.mark.parametrize("digest", ["", "abc", "../" * 21 + "x", "A" * 64, "0" * 65, "0" * 63 + "\n"])
def test_an_invalid_digest_names_no_file(digest: str) -> None:
    with pytest.raises(ValidationError):
        File(file=digest)
    assert list(find_files({"file": digest, "size": 1})) == []


def test_files_are_found_anywhere_in_json() -> None:
    one, two = ({"file": digit * 64, "name": "", "size": 1, "media_type": "x/y"} for digit in "12")
    assert [each.file[0] for each in find_files({"a": [one, {"b": {"c": two}}], "file": "no file"})] == ["1", "2"]
    assert list(find_files(["x", None, 3, {"file": None}])) == []


def test_a_relative_home_means_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileSettings(_env_file=None).home == tmp_path / ".retoma"
    assert FileSettings(_env_file=None, home=Path("here")).home == tmp_path / "here"
