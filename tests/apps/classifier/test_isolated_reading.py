from __future__ import annotations

from pathlib import Path

from tests.apps.classifier.documents import hanging_pdf, letter, memory_exhausting_pdf, pdf
from tests.apps.classifier.isolated_reading import batch
from tests.conftest import OpenSandbox


async def test_documents_that_kill_or_hang_their_reader_fail_alone(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    made = {
        "good": letter(2)[1],
        "hungry": memory_exhausting_pdf(),
        "locked": pdf([["segredo"]], password="1234"),
        "hanging": hanging_pdf(),
        "late": letter(3)[1],
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    async with open_sandbox(batch) as sandbox:
        run = await sandbox.run(batch, {"paths": [str(tmp_path / name) for name in made]})
    results = run.results["report"]
    assert results.pop("good").startswith("SENTENÇA.")
    assert results.pop("late").startswith("OFÍCIO.")
    assert results == {"hungry": "CRASHED", "locked": "FILE_ENCRYPTED", "hanging": "CPU_LIMIT"}
