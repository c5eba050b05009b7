"""The units of systemd: valid, and with few rights."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from retoma import Settings
from tests.deploy.tools import FOLDER
from tests.system_packages import require

UNITS = ("retoma-server.service", "retoma-worker@.service")
PAGE = FOLDER.parent / "docs" / "deploy.md"
SECRETS = ("RETOMA_DATABASE_URL", "RETOMA_CONNECTIONS_KEY")
PROGRAM = "/opt/retoma/bin/retoma"


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    require(shutil.which("systemd-analyze") is not None, "systemd-analyze (Debian: apt-get install systemd)")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def read(unit: str) -> str:
    return (FOLDER / "systemd" / unit).read_text()


def values(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", read(unit), re.MULTILINE)


@pytest.fixture(params=UNITS)
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit, with the program where it is here, because systemd checks that it exists."""
    name = str(request.param)
    unit = tmp_path / name
    unit.write_text(read(name).replace(PROGRAM, str(Path(sys.executable).parent / "retoma")))
    return unit


def test_systemd_finds_no_fault(installed: Path) -> None:
    checked = analyze("verify", "--man=no", str(installed))
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_misspelt_directive_is_a_fault(installed: Path) -> None:
    installed.write_text(installed.read_text().replace("ProtectSystem=", "ProtectSystems="))
    assert "ProtectSystems" in analyze("verify", "--man=no", str(installed)).stderr


def test_the_exposure_is_low(installed: Path) -> None:
    # Of 10; the threshold is in tenths. What is left: network, unix sockets, child processes and their limits.
    checked = analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(installed))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_both_units_have_the_same_rights(unit: str) -> None:
    rights = re.compile(r"# Rights.*?\n\n", re.DOTALL)
    assert rights.findall(read(unit)) == rights.findall(read(UNITS[0]))


def test_a_worker_has_time_to_drain() -> None:
    (drain,) = (value for value in values(UNITS[1], "Environment") if value.startswith("RETOMA_DRAIN_SECONDS="))
    (stop,) = values(UNITS[1], "TimeoutStopSec")
    assert int(stop) == int(drain.partition("=")[2]) + 45


@pytest.mark.parametrize("unit", UNITS)
def test_secrets_are_credentials(unit: str) -> None:
    assert "RETOMA_SECRETS_FOLDER=%d" in values(unit, "Environment")
    credentials = dict(credential.split(":") for credential in values(unit, "LoadCredential"))
    assert credentials == {name: f"/etc/retoma/secrets/{name}" for name in SECRETS}


def test_the_instructions_create_every_credential() -> None:
    created = re.findall(r"^.*install -m 0600 /dev/stdin (\S+)", PAGE.read_text(), re.MULTILINE)
    assert created == [f"/etc/retoma/secrets/{name}" for name in SECRETS]


def test_the_example_has_settings_and_no_secret() -> None:
    names = re.findall(r"^#?([A-Z_]+)=", read("retoma.env"), re.MULTILINE)
    assert {name.removeprefix("RETOMA_").lower() for name in names} <= {
        *Settings.model_fields,
        "files_url",
        "log",
        "otel_exporter_otlp_endpoint",
    }
    assert not {*SECRETS, "RETOMA_WEBHOOK_SECRET"} & set(names)
