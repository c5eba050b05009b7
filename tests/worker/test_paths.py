from __future__ import annotations

from pathlib import Path

from retoma import File
from retoma.files import FileSettings, FileStore, create_file_store
from tests.conftest import OpenSandbox
from tests.worker.file_steps import reading, strange


def files_in(folder: Path) -> FileStore:
    return create_file_store(FileSettings(_env_file=None, home=folder))


async def test_steps_read_the_files_that_their_item_names_also_in_a_child(
    open_sandbox: OpenSandbox, tmp_path: Path
) -> None:
    files = files_in(tmp_path)
    saved = [await files.save(content, name=name) for name, content in (("a", b"one"), ("b", b"three"))]
    async with open_sandbox(reading, files=files) as sandbox:
        run = await sandbox.run(reading, {"files": [file.model_dump() for file in saved]})
    assert run.results["text"] == {"a": "3 one", "b": "5 three"}


async def test_a_missing_file_fails_the_job_with_the_reason(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    files = files_in(tmp_path)
    saved = await files.save(b"one", name="a")
    (await files.get_path(saved)).unlink()
    async with open_sandbox(reading, files=files) as sandbox:
        run = await sandbox.run(reading, {"files": [saved.model_dump()]})
        (item,) = await sandbox.client.runs.list_items(run.id, "documents")
    assert (item.state, item.step, item.code) == ("failed", "length", "FILE_MISSING")
    assert item.error["message"].endswith(f"the file store has no file with the digest {saved.file}")


async def test_a_file_that_the_jobs_data_does_not_name_has_no_path(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    files = files_in(tmp_path)
    other = await files.save(b"another's", name="b")
    async with open_sandbox(strange, files=files) as sandbox:
        run = await sandbox.run(strange, {"files": [], "other": File(file=other.file).model_dump()})
        (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    assert run.state == "failed"
    assert "refer to no file" in error["message"]
