"""The schema of KEDA's custom resources, which an npm package generates from those of a release of KEDA."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PACKAGE, VERSION = "@kubernetes-models/keda", "2.0.0"
ASKED_BY = "RETOMA_TEST_KEDA"
SECONDS = 300
PROGRAM = """
import { readFileSync } from "node:fs";
const invalid = [];
for (const resource of JSON.parse(readFileSync(0))) {
  const { [resource.kind]: Model } = await import(`PACKAGE/${resource.apiVersion}/${resource.kind}`);
  try { new Model(resource).validate(); }
  catch (error) { invalid.push(`${resource.metadata.name}: ${error.message}`); }
}
console.log(JSON.stringify(invalid));
"""


def find_invalid(resources: Sequence[dict[str, Any]]) -> list[str]:
    """Return the name of each resource that does not match its schema, with the reason. Skip the test without npm."""
    program = _install() / "validate.mjs"
    program.write_text(PROGRAM.replace("PACKAGE", PACKAGE))
    done = subprocess.run(
        ["node", program], input=json.dumps(resources), capture_output=True, text=True, check=True, timeout=SECONDS
    )
    return list(json.loads(done.stdout))


def _install() -> Path:
    if not os.environ.get(ASKED_BY):
        pytest.skip(f"installs a package from the network: set {ASKED_BY}=1 to run it")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = Path(tempfile.gettempdir()) / f"retoma-keda-{VERSION}"
    if not (folder / "node_modules" / PACKAGE / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--no-save"]
        subprocess.run(
            [npm, "install", *options, f"{PACKAGE}@{VERSION}"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
    return folder
