"""The wheel works alone: without the working copy, without extras, without the packages of a developer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

import httpx2
import pytest
from packaging.requirements import Requirement

from tests.cli.terminal import Process
from tests.environment import PROJECT, without_project_variables

PAGES = ("/", "/runs", "/articles/")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(PROJECT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and of the installed packages only those that it requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for required in list_required():
        for name in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(required.locate_file(name))))
    pip(f"--python={folder / 'bin' / 'python'}", "install", "--no-deps", "--no-index", str(wheel))
    return folder


def pip(*arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def list_required() -> Iterator[Distribution]:
    """The installed packages that `pip install retoma` would install, without an extra of Retoma."""
    found: set[tuple[str, str]] = set()
    open_requirements = [(requirement, "") for requirement in distribution("retoma").requires or ()]
    while open_requirements:
        text, extra = open_requirements.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (requirement.name, wanted) not in found:
                found.add((requirement.name, wanted))
                package = distribution(requirement.name)
                open_requirements += [(each, wanted) for each in package.requires or ()]
                yield package


def test_the_wheel_has_every_file_of_its_packages(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    kept = subprocess.run(
        ["git", "ls-files", "retoma", "retoma_apps"], cwd=PROJECT / "src", capture_output=True, text=True, check=True
    )
    assert packed == set(kept.stdout.split())


def test_the_wheel_runs_alone_from_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    with run_retoma(environment, tmp_path, "dev", "retoma_apps", "--port", "0") as dev:
        address = re.findall(r"http://127\.0\.0\.1:\d+", dev.wait_for_output("worker_ready"))[0]
        key = (tmp_path / ".retoma" / "dev-key").read_text()
        headers = {"X-API-Key": key, "Accept-Language": "pt-BR"}
        with httpx2.Client(base_url=address, headers=headers, follow_redirects=True) as browser:
            assert browser.get("/readyz").status_code == 200
            assert {page: browser.get(page).status_code for page in PAGES} == dict.fromkeys(PAGES, 200)
            page = browser.get("/runs").text
            assert "Execuções" in page
            for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
                assert browser.get(file).status_code == 200, file
        os.kill(dev.pid, signal.SIGTERM)
        assert dev.wait_for_exit() == 0


@contextmanager
def run_retoma(environment: Path, folder: Path, *command: str) -> Iterator[Process]:
    """Run the installed program in a folder that has nothing else in it."""
    output = folder.with_suffix(".output")
    with output.open("w") as stream:
        child = subprocess.Popen(
            [environment / "bin" / "retoma", *command],
            cwd=folder,
            env=without_project_variables(os.environ) | {"LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield Process(child, output)
    finally:
        child.kill()
        child.wait()
