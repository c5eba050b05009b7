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
from tests.deploy.metric_names import used_in
from tests.deploy.scrape import fetch_metrics, names, open_busy_server
from tests.server.api import Api

FOLDER = Path(__file__).resolve().parents[2] / "deploy"
KEDA = (FOLDER / "keda" / "workers.yaml", FOLDER / "keda" / "servers.yaml")
CLOUD_RUN = FOLDER / "cloud-run" / "crema.yaml"

Schema = dict[str, Any]


def record(required: str = "", **properties: Any) -> Schema:
    """Return the schema of an object with no other fields than these."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def list_of(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
# The parts of KEDA's custom resources (keda.sh/v1alpha1) that the examples use. All metadata of a trigger is text.
POLICY = record("type value periodSeconds", type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds=COUNT)
RULES = record(stabilizationWindowSeconds=COUNT, policies=list_of(POLICY))
BEHAVIOUR = record(horizontalPodAutoscalerConfig=record(behavior=record(scaleUp=RULES, scaleDown=RULES)))
TRIGGER = record(
    "type metadata",
    type=TEXT,
    name=TEXT,
    metadata={"type": "object", "additionalProperties": TEXT},
    authenticationRef=record("name", name=TEXT),
)
SCALED_OBJECT = record(
    "scaleTargetRef triggers",
    scaleTargetRef=record("name", name=TEXT),
    pollingInterval=COUNT,
    cooldownPeriod=COUNT,
    minReplicaCount=COUNT,
    maxReplicaCount=COUNT,
    advanced=BEHAVIOUR,
    triggers=list_of(TRIGGER),
)
NAMED = record("name", name=TEXT)


def resource(kind: str, spec: Schema) -> Schema:
    return record(
        "apiVersion kind metadata spec",
        apiVersion={"const": "keda.sh/v1alpha1"},
        kind={"const": kind},
        metadata=NAMED,
        spec=spec,
    )


SECRET = record("parameter name key", parameter=TEXT, name=TEXT, key=TEXT)
SCHEMAS = {
    "ScaledObject": resource("ScaledObject", SCALED_OBJECT),
    "TriggerAuthentication": resource("TriggerAuthentication", record(secretTargetRef=list_of(SECRET))),
}
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


def test_the_cloud_run_configuration_matches_its_schema() -> None:
    (config,) = read(CLOUD_RUN)
    jsonschema_rs.validate(CREMA, config)
    (target,) = (one["spec"]["scaleTargetRef"]["name"] for one in config["spec"]["scaledObjects"])
    assert target.split("/")[::2] == ["projects", "locations", "workerpools"]


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
    assert "--concurrency=1" in render["args"]
    assert int(render["resources"]["requests"]["cpu"]) >= 4
    assert image["resources"]["requests"]["cpu"] == "250m"
    few, many = (found["ScaledObject", name]["maxReplicaCount"] for name in ("render-workers", "image-workers"))
    assert few * 10 <= many
    assert "Use few strong machines" in (FOLDER.parent / "docs" / "running.md").read_text()


async def test_the_triggers_find_their_value_in_a_real_answer(database: Database) -> None:
    triggers = list(list_triggers("metrics-api"))
    assert len(triggers) == 3
    async with open_busy_server(database) as api:
        for trigger in triggers:
            # One job runs and one waits, in a queue that the examples call otherwise.
            assert await evaluate(api, trigger["metadata"], queue="default") == 1


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


async def evaluate(api: Api, metadata: dict[str, str], queue: str) -> float:
    """Return what the scaler `metrics-api` reads: the number at a path of names, in the answer to its request."""
    assert (metadata["authMode"], metadata["method"], metadata["keyParamName"]) == ("apiKey", "header", "X-API-Key")
    path, _, _ = urlsplit(metadata["url"]).path.rpartition("/")
    answer = await api.get(f"{path}/{queue}")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for name in metadata["valueLocation"].split("."):
        found = found[name]
    assert isinstance(found, int)
    return found / float(metadata["targetValue"])
