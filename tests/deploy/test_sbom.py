"""The software bill of materials of a release."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.deploy.tools import require_module
from tests.environment import PROJECT


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tool writes, after it has checked it by the schema of CycloneDX."""
    require_module("cyclonedx")
    output = tmp_path_factory.mktemp("sbom") / "retoma.cdx.json"
    subprocess.run([sys.executable, PROJECT / "tools" / "sbom.py", output], check=True, capture_output=True)
    return dict(json.loads(output.read_text()))


def test_it_describes_this_release(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    component = bill["metadata"]["component"]
    assert component["name"] == "retoma"
    assert f'version = "{component["version"]}"' in (PROJECT / "pyproject.toml").read_text()


def test_it_has_every_locked_dependency_with_its_hashes(bill: dict[str, Any]) -> None:
    locked = (PROJECT / "requirements" / "run.txt").read_text()
    listed = [(each["name"], each["version"]) for each in bill["components"]]
    assert sorted(listed) == sorted(re.findall(r"^([\w.-]+)==([^\s;]+)", locked, re.MULTILINE))
    hashes = [
        one["content"]
        for each in bill["components"]
        for reference in each["externalReferences"]
        for one in reference.get("hashes", ())
    ]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:(\w+)", locked))


def test_the_pages_name_the_extras_of_the_lock() -> None:
    locked = set(re.findall(r"--extra (\w+)", (PROJECT / "Makefile").read_text()))
    for page in ("deploy.md", "releases.md"):
        (sentence,) = re.findall(r"the extras ((?:`\w+`[,\s]+)+and\s+`\w+`)", (PROJECT / "docs" / page).read_text())
        assert set(re.findall(r"\w+", sentence)) - {"and"} == locked, page
