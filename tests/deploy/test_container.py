"""The recipe of the container image: it keeps what docs/deploy.md promises."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from retoma import Settings
from retoma.cli.commands import COMMANDS
from tests.deploy.tools import FOLDER, run_tool
from tests.environment import PROJECT

FILE = FOLDER / "container" / "Containerfile"
Instruction = tuple[str, str]


def read_stages() -> dict[str, list[Instruction]]:
    """The instructions of each stage, after those of the stage that it starts from."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.MULTILINE))
    stages: dict[str, list[Instruction]] = {}
    here: list[Instruction] = []
    for line in filter(None, text.splitlines()):
        name, _, value = line.partition(" ")
        if name == "FROM":
            base, _, stage = value.partition(" AS ")
            here = stages[stage] = [*stages.get(base, [("FROM", base)])]
        here.append((name, value.strip()))
    return stages


def last(stage: str, name: str) -> str:
    return [value for each, value in read_stages()[stage] if each == name][-1]


def variables(stage: str) -> dict[str, str]:
    found = [value for name, value in read_stages()[stage] if name == "ENV"]
    return dict(word.split("=", 1) for value in found for word in shlex.split(value))


def test_the_linter_finds_no_fault() -> None:
    run_tool("hadolint", str(FILE))


@pytest.mark.parametrize("stage", ["server", "worker"])
def test_a_container_does_not_run_as_root(stage: str) -> None:
    user, group = last(stage, "USER").split(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000


def test_the_base_image_has_a_version() -> None:
    (image,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", FILE.read_text(), re.MULTILINE)
    assert re.fullmatch(r"[a-z0-9./-]+:\d+\.\d+-slim-[a-z]+", image)
    assert {value for name, value in read_stages()["build"] if name == "FROM"} == {"${PYTHON_IMAGE}"} | {
        "${PYTHON_IMAGE} AS build"
    }


def test_every_dependency_is_installed_by_its_hash() -> None:
    installed = [part for _, value in read_stages()["build"] for part in value.split("&&") if "pip install" in part]
    assert len(installed) == 2
    assert all("--require-hashes" in each or "--no-deps --no-build-isolation" in each for each in installed)


def test_every_copied_file_exists_and_is_sent_to_the_build() -> None:
    ignored = (PROJECT / ".containerignore").read_text().splitlines()
    copied = [source for name, value in read_stages()["build"] if name == "COPY" for source in value.split()[:-1]]
    assert copied
    for source in copied:
        assert (PROJECT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert ignored[1] == "*"
    assert (FILE.parent / "Containerfile.dockerignore").resolve() == PROJECT / ".containerignore"


@pytest.mark.parametrize("stage", ["server", "worker"])
def test_process_1_forwards_signals(stage: str) -> None:
    program = json.loads(last(stage, "ENTRYPOINT"))
    assert program == ["tini", "--", "retoma"]
    assert last(stage, "STOPSIGNAL") == "SIGTERM"


@pytest.mark.parametrize(
    ("stage", "command", "check"), [("server", "serve", "/readyz"), ("worker", "worker", "workers")]
)
def test_each_role_has_its_command_and_its_health_check(stage: str, command: str, check: str) -> None:
    assert json.loads(last(stage, "CMD")) == [command]
    assert command in COMMANDS
    health = last(stage, "HEALTHCHECK")
    assert check in " ".join(json.loads(health.partition("CMD ")[2]))


def test_the_variables_are_settings() -> None:
    names = {name.removeprefix("RETOMA_").lower() for name in variables("server") if name.startswith("RETOMA_")}
    assert names - {"log"} <= set(Settings.model_fields)


def test_only_the_volume_is_written_to() -> None:
    volumes = json.loads(last("server", "VOLUME"))
    home = Path(variables("server")["RETOMA_HOME"])
    assert [str(home.parent)] == volumes
    assert variables("server")["PYTHONDONTWRITEBYTECODE"] == "1"
