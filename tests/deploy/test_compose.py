"""The Compose file: valid by the Compose specification, and it keeps what docs/deploy.md promises."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import retoma_apps
from retoma.encryption import KEY_BYTES, parse_keys
from tests.deploy.tools import FOLDER, require_module

COMPOSE = FOLDER / "compose"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)\}")
OURS = ("migrate", "server", "worker", "render-worker")


def read_example() -> dict[str, str]:
    lines = (COMPOSE / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def read_text() -> str:
    """The file, with the variables of the example."""
    return VARIABLE.sub(lambda found: read_example()[found[1]], (COMPOSE / "compose.yaml").read_text())


def parse(file: dict[str, Any]) -> set[str]:
    """The names of the services, if the file follows the specification. JSON is YAML whose anchors are resolved."""
    require_module("compose_spec")
    from compose_spec import PyCompose

    return set(PyCompose.from_yaml(json.dumps(file)).service_names())


def read() -> dict[str, Any]:
    return dict(yaml.safe_load(read_text()))


def services() -> dict[str, Any]:
    return dict(read()["services"])


def test_the_file_follows_the_compose_specification() -> None:
    assert parse(read()) == set(services())


def test_a_misspelt_field_does_not_follow_the_specification() -> None:
    file = read()
    file["services"]["server"]["read_onli"] = True
    with pytest.raises(ValueError, match="read_onli"):
        parse(file)


def test_the_example_sets_exactly_the_variables_of_the_file() -> None:
    found = VARIABLE.findall((COMPOSE / "compose.yaml").read_text())
    assert {name for name, _ in found} == set(read_example())
    assert {name: default for name, default in found if default}.items() <= read_example().items()


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_rights(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith("0")
    assert not any(password in json.dumps(service["environment"]) for password in ("PASSWORD", "SECRET_ACCESS_KEY"))


def test_every_image_has_a_version() -> None:
    for name, service in services().items():
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"\d", tag), name


def test_every_service_that_stays_has_a_health_check() -> None:
    stays = {name for name, service in services().items() if service["restart"] == "unless-stopped"}
    assert stays == {"postgres", "s3", "server", "worker", "render-worker"}
    assert all("test" in services()[name]["healthcheck"] for name in stays)


def test_servers_and_workers_wait_for_the_schema() -> None:
    for name in ("server", "worker", "render-worker"):
        assert services()[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert services()["migrate"]["command"] == ["db", "upgrade"]


def test_the_workers_serve_every_queue_once() -> None:
    commands = [word for name in ("worker", "render-worker") for word in services()[name]["command"]]
    served = [queue for word in commands if word.startswith("--queue=") for queue in word[8:].split(",")]
    assert sorted(served) == sorted(retoma_apps.app.queues)


@pytest.mark.parametrize("name", ["worker", "render-worker"])
def test_a_worker_has_time_to_drain(name: str) -> None:
    service = services()[name]
    drain = int(service["environment"]["RETOMA_DRAIN_SECONDS"])
    assert int(service["stop_grace_period"].removesuffix("s")) == drain + 45


def test_only_the_server_is_published_and_only_on_this_machine() -> None:
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert published == {"server": ["127.0.0.1:8765:8765"]}


def test_the_secrets_are_created_once_and_for_their_owner(tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "create-secrets.sh", tmp_path)
    created = create_secrets(tmp_path)
    listed = {str(Path(secret["file"])) for secret in read()["secrets"].values()}
    assert {f"secrets/{name}" for name in created} == listed
    assert created["retoma_password"] in created["retoma/RETOMA_DATABASE_URL"]
    assert created["retoma_password"] != created["postgres_password"]
    (identity,) = json.loads(created["s3.json"])["identities"]
    assert identity["credentials"][0]["secretKey"] == created["retoma/AWS_SECRET_ACCESS_KEY"]
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert create_secrets(tmp_path) == created


def test_the_containers_get_a_key_that_encrypts_connections(tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "create-secrets.sh", tmp_path)
    (key,) = parse_keys(create_secrets(tmp_path)["retoma/RETOMA_CONNECTIONS_KEY"]).values()
    assert len(key) == KEY_BYTES
    assert all("RETOMA_CONNECTIONS_KEY" in services()[name]["secrets"] for name in OURS)


def create_secrets(folder: Path) -> dict[str, str]:
    subprocess.run(["sh", str(folder / "create-secrets.sh")], check=True, cwd="/")
    made = folder / "secrets"
    return {str(file.relative_to(made)): file.read_text() for file in made.rglob("*") if file.is_file()}
