"""The examples for KEDA and Cloud Run: valid by the schemas of their formats, and their triggers find a real answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]

from retoma.records import Scope
from retoma.store.database import Database
from retoma_apps.stories.application import make_app
from tests.apps.stories.story_app import StoryApp, make_services, patch_media, running_story_app
from tests.conftest import empty_database
from tests.deploy.keda_models import find_invalid
from tests.deploy.keda_schema import COUNT, NAMED, SCALED_OBJECT, SCHEMAS, TEXT, list_of, record
from tests.deploy.metric_names import used_in
from tests.deploy.scrape import fetch_metrics, names, open_busy_server
from tests.server.api import Api

FOLDER = Path(__file__).resolve().parents[2] / "deploy"
KEDA = (FOLDER / "keda" / "workers.yaml", FOLDER / "keda" / "servers.yaml")
CLOUD_RUN = FOLDER / "cloud-run" / "crema.yaml"

CLOUD_SECRET = record("parameter id", parameter=TEXT, id=TEXT, version=TEXT)
CLOUD_AUTHENTICATION = record(
    "metadata spec", metadata=NAMED, spec=record(gcpSecretManager=record(secrets=list_of(CLOUD_SECRET)))
)
CREMA = record(
    "apiVersion kind spec",
    apiVersion={"const": "crema/v1"},
    kind={"const": "CremaConfig"},
    spec=record(
        "scaledObjects",
        pollingInterval=COUNT,
        triggerAuthentications=list_of(CLOUD_AUTHENTICATION),
        scaledObjects=list_of(record("spec", spec=SCALED_OBJECT)),
    ),
)


def read(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def list_scaled_objects() -> list[dict[str, Any]]:
    (crema,) = read(CLOUD_RUN)
    keda = [one["spec"] for file in KEDA for one in read(file) if one["kind"] == "ScaledObject"]
    return [*keda, *(one["spec"] for one in crema["spec"]["scaledObjects"])]


def list_triggers(kind: str) -> Iterator[dict[str, Any]]:
    for scaled in list_scaled_objects():
        yield from (trigger for trigger in scaled["triggers"] if trigger["type"] == kind)


@pytest.mark.parametrize("file", KEDA, ids=lambda file: file.name)
def test_the_keda_resources_match_their_schema(file: Path) -> None:
    for one in read(file):
        if one["apiVersion"].startswith("keda.sh/"):
            jsonschema_rs.validate(SCHEMAS[one["kind"]], one)


def test_the_resources_match_the_schema_of_keda_itself() -> None:
    """The schema above is stricter about unknown fields, and this one about everything else."""
    resources = [one for file in KEDA for one in read(file) if one["apiVersion"].startswith("keda.sh/")]
    (crema,) = read(CLOUD_RUN)
    keda = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "crema"}}
    resources += [keda | one for one in crema["spec"]["scaledObjects"]]
    assert find_invalid(resources) == []
    assert find_invalid([keda | {"spec": {"triggers": []}}]) == [
        "crema: data/spec must have required property scaleTargetRef"
    ]


def test_the_cloud_run_configuration_matches_its_schema() -> None:
    (config,) = read(CLOUD_RUN)
    jsonschema_rs.validate(CREMA, config)
    for one in config["spec"]["scaledObjects"]:
        assert one["spec"]["scaleTargetRef"]["name"].split("/")[::2] == ["projects", "locations", "workerpools"]


def test_a_misspelt_field_does_not_match_the_schema() -> None:
    (config,) = read(CLOUD_RUN)
    config["spec"]["scaledObjects"][0]["spec"]["maxReplicas"] = 5
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(CREMA, config)


def test_every_reference_has_its_target() -> None:
    workers, _ = (read(file) for file in KEDA)
    named = {(one["kind"], one["metadata"]["name"]) for one in workers}
    for one in workers:
        if one["kind"] == "ScaledObject":
            assert ("Deployment", one["spec"]["scaleTargetRef"]["name"]) in named
            for trigger in one["spec"]["triggers"]:
                assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in named


def test_a_worker_has_time_to_drain() -> None:
    for one in read(KEDA[0]):
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            (drain,) = (
                int(variable["value"])
                for variable in pod["containers"][0]["env"]
                if variable["name"] == "RETOMA_DRAIN_SECONDS"
            )
            assert pod["terminationGracePeriodSeconds"] >= drain + 45


def test_render_workers_are_few_and_strong() -> None:
    found = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in read(KEDA[0])}
    (render,), (image,) = (
        found["Deployment", name]["template"]["spec"]["containers"] for name in ("render-workers", "image-workers")
    )
    options = dict(argument.split("=") for argument in render["args"] if "=" in argument)
    cpus, memory = (render["resources"]["requests"][name] for name in ("cpu", "memory"))
    assert int(cpus) >= 2 * int(options["--cpus-per-job"])
    assert int(memory.removesuffix("Gi")) * 1024 >= 2 * int(options["--memory-per-job"])
    assert image["resources"]["requests"]["cpu"] == "250m"
    few, many = (found["ScaledObject", name]["maxReplicaCount"] for name in ("render-workers", "image-workers"))
    assert few * 10 <= many
    assert "Use a few powerful machines" in (FOLDER.parent / "docs" / "running.md").read_text()


async def test_the_triggers_find_their_value_in_a_real_answer(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triggers = list(list_triggers("metrics-api"))
    assert len(triggers) == 4
    await empty_database(database)
    patch_media(monkeypatch)
    async with running_story_app(database, tmp_path) as story_app:
        for trigger in triggers:
            assert await evaluate(story_app.api, trigger["metadata"]) == 0, "nothing was ordered yet"
        await order_story_to_render(story_app)
        await order_story_to_draw(story_app)
        for trigger in triggers:
            assert await evaluate(story_app.api, trigger["metadata"]) >= 1, trigger["metadata"]["url"]
        found = (await story_app.api.get("/api/v1/autoscale/generate_image")).json()
    assert found.pop("oldest_wait_seconds") >= 0
    assert found == {
        "queue": "generate_image",
        "queued": 2,
        "running": 0,
        "desired_workers": 1,
        "reason": "one worker is enough",
    }


async def order_story_to_draw(story_app: StoryApp) -> None:
    await story_app.order(scenes=2)
    await story_app.write_scripts()


async def order_story_to_render(story_app: StoryApp) -> None:
    await order_story_to_draw(story_app)
    async with story_app.api.sandbox.manual_worker() as worker:
        while claims := await worker.claim(10, queues=["generate_image", "generate_audio"]):
            await worker.record_outcomes(await worker.attempt(claims))


def test_the_workers_serve_the_queues_that_their_triggers_ask_for(tmp_path: Path) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in read(KEDA[0])}
    app = make_app(make_services(tmp_path))
    for name in ("image-workers", "render-workers"):
        (container,) = found["Deployment", name]["template"]["spec"]["containers"]
        _, _, location, queue, *_ = container["args"]
        (trigger,) = found["ScaledObject", name]["triggers"]
        assert location == "retoma_apps.stories"
        assert queue.removeprefix("--queue=") == trigger["metadata"]["url"].rpartition("/")[2]
        assert queue.removeprefix("--queue=") in app.queues
    (crema,) = read(CLOUD_RUN)
    pools = {
        one["spec"]["scaleTargetRef"]["name"].rpartition("/")[2]: one["spec"] for one in crema["spec"]["scaledObjects"]
    }
    assert pools.keys() == {"image-workers", "render-workers"}
    for name, pool in pools.items():
        (trigger,), (same,) = pool["triggers"], found["ScaledObject", name]["triggers"]
        assert urlsplit(trigger["metadata"]["url"]).path == urlsplit(same["metadata"]["url"]).path


async def test_the_rate_of_requests_is_a_metric(database: Database) -> None:
    (trigger,) = list_triggers("prometheus")
    async with open_busy_server(database) as api:
        exposed = names(await fetch_metrics(api))
    assert used_in(trigger["metadata"]["query"]) <= exposed


async def test_the_advice_needs_the_scope_of_metrics(database: Database) -> None:
    async with open_busy_server(database) as api:
        assert (await api.get("/api/v1/autoscale/default", key=None)).status_code == 401
        assert (await api.get("/api/v1/autoscale/nothing")).status_code == 404
        key = await api.make_key(Scope.POOLS_READ)
        assert (await api.get("/api/v1/autoscale/default", key=key)).status_code == 403


async def evaluate(api: Api, metadata: dict[str, str]) -> float:
    """Return what the scaler `metrics-api` reads: the number at a path of names, in the answer to its request."""
    assert (metadata["authMode"], metadata["method"], metadata["keyParamName"]) == ("apiKey", "header", "X-API-Key")
    answer = await api.get(urlsplit(metadata["url"]).path)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for name in metadata["valueLocation"].split("."):
        found = found[name]
    assert isinstance(found, int)
    return found / float(metadata["targetValue"])
