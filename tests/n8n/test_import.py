"""The files of deploy/n8n as the command line of a real n8n imports them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.n8n.instance import FOLDER, run_command


def test_every_workflow_is_imported_as_it_is(tmp_path: Path) -> None:
    files = sorted(FOLDER.glob("*.json"))
    message = run_command(tmp_path, "import:workflow", "--separate", f"--input={FOLDER}")
    assert f"Successfully imported {len(files)} workflows." in message
    for file in files:  # again, one by one: it replaces the workflow
        assert "Successfully imported 1 workflow." in run_command(tmp_path, "import:workflow", f"--input={file}")
    run_command(tmp_path, "export:workflow", "--all", f"--output={tmp_path / 'exported.json'}")
    exported = {each["id"]: each for each in json.loads((tmp_path / "exported.json").read_text(encoding="utf-8"))}
    shipped = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    assert [{name: exported[each["id"]][name] for name in each} for each in shipped] == shipped
    assert len(exported) == len(files)
