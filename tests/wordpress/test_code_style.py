"""The code of the plugin parses and follows WordPress's style."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system_packages import require

PLUGIN = Path(__file__).resolve().parents[2] / "wordpress" / "autowriter"
RULES = PLUGIN.parent / "phpcs.xml"
FILES = sorted(PLUGIN.rglob("*.php"))


def test_every_file_parses() -> None:
    require(shutil.which("php") is not None, "PHP (apt-get install php-cli)")
    for file in FILES:
        ended = subprocess.run(["php", "-l", str(file)], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout


def test_the_code_follows_the_rules_of_style() -> None:
    require(shutil.which("phpcs") is not None, "PHP_CodeSniffer (apt-get install php-codesniffer)")
    ended = subprocess.run(["phpcs", f"--standard={RULES}", str(PLUGIN)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_does_nothing_when_it_is_opened_directly(file: Path) -> None:
    """Its namespace is declared, and outside of the two entry points there are only declarations."""
    text = file.read_text()
    assert "\nnamespace AutoWriter;\n" in text
    if file.name in ("autowriter.php", "uninstall.php"):
        assert re.search(r"if \( ! defined\( '(ABSPATH|WP_UNINSTALL_PLUGIN)' \) \) \{\n\texit;", text)
    else:
        body = text.partition("\nnamespace AutoWriter;\n")[2]
        starts = re.findall(r"^(\w+)", body, re.MULTILINE)
        assert set(starts) <= {"function", "const", "class"}


def test_versions_agree() -> None:
    main, readme = (PLUGIN / "autowriter.php").read_text(), (PLUGIN / "readme.txt").read_text()
    found = [
        re.findall(r"Version: +(\S+)", main)[0],
        re.findall(r"const VERSION = '(\S+)'", main)[0],
        re.findall(r"Stable tag: (\S+)", readme)[0],
    ]
    assert len(set(found)) == 1
