"""The Helm chart, rendered by Helm: valid for Kubernetes and KEDA, and it keeps what docs/deploy.md promises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]

import retoma_apps
from retoma import Settings
from tests.deploy.keda_schema import SCHEMAS
from tests.deploy.tools import FOLDER, require_module
from tests.environment import PROJECT

CHART = FOLDER / "helm" / "retoma"
OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.29", "1.37"
VALUES: dict[str, Any] = {
    "publicUrl": "https://retoma.example.com",
    "filesUrl": "s3://retoma/files",
    "env": {"RETOMA_RATE_LIMIT_PER_MINUTE": 600},
}
EVERYTHING = VALUES | {
    "image": {"pullSecrets": [{"name": "registry"}], "tag": "0.1.0rc1@sha256:" + "0" * 64},
    "serviceAccount": {"annotations": {"role": "files"}},
    "server": {"trustedProxies": "10.0.0.1"},
    "ingress": {"enabled": True, "className": "nginx", "host": "retoma.example.com", "tlsSecretName": "tls"},
    "networkPolicy": {"serverFrom": [{"namespaceSelector": {}}]},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}
NOTHING_OPTIONAL = VALUES | {
    "migrate": {"enabled": False},
    "keda": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
Resource = dict[str, Any]


def render(values: dict[str, Any]) -> list[Resource]:
    require_module("helm_python")
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="retoma", namespace="production")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [resource for text in texts for resource in yaml.safe_load_all(text) if resource]


def render_kind(kind: str, values: dict[str, Any] = VALUES) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in render(values) if each["kind"] == kind}


def list_pods(values: dict[str, Any] = VALUES) -> Iterator[Resource]:
    for resource in render(values):
        if resource["kind"] in ("Deployment", "Job"):
            yield resource["spec"]["template"]["spec"]


@pytest.mark.parametrize("kubernetes", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
@pytest.mark.parametrize("values", [VALUES, EVERYTHING, NOTHING_OPTIONAL], ids=["default", "everything", "nothing"])
def test_the_resources_are_valid_for_kubernetes(values: dict[str, Any], kubernetes: str) -> None:
    require_module("kubernetes_validate")
    import kubernetes_validate

    for resource in render(values):
        if not resource["apiVersion"].startswith("keda.sh/"):
            kubernetes_validate.validate(resource, kubernetes, strict=True)


def test_a_misspelt_field_is_not_valid_for_kubernetes() -> None:
    require_module("kubernetes_validate")
    import kubernetes_validate

    (service,) = render_kind("Service").values()
    service["spec"]["selectors"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, NEWEST_KUBERNETES, strict=True)


def test_the_resources_of_keda_match_their_schema() -> None:
    found = [each for each in render(VALUES) if each["apiVersion"].startswith("keda.sh/")]
    assert {each["kind"] for each in found} == set(SCHEMAS)
    for each in found:
        jsonschema_rs.validate(SCHEMAS[each["kind"]], each)


def test_the_values_are_checked() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema_rs.validate(schema, values)
    for wrong in ({"server": {"replica": 3}}, {"workers": [{"concurrency": 4}]}, {"filesUrl": "/mnt/files"}):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, deepcopy(values) | wrong)


def test_a_missing_address_is_named() -> None:
    require_module("helm_python")
    import helm_python

    with pytest.raises(helm_python.HelmError, match="publicUrl is required"):
        render({"filesUrl": "s3://retoma"})


def test_the_chart_installs_the_image_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in (PROJECT / "pyproject.toml").read_text()
    (server,) = render_kind("Deployment")["retoma-server"]["spec"]["template"]["spec"]["containers"]
    assert server["image"].endswith(f"/retoma:{chart['appVersion']}")


def test_no_container_has_rights() -> None:
    pods = list(list_pods())
    assert len(pods) == len(retoma_apps.app.queues) + 2
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}


def test_secrets_are_files_and_settings_are_known() -> None:
    for pod in list_pods():
        (container,) = pod["containers"]
        for variable in container["env"]:
            name = variable["name"].removeprefix("RETOMA_").lower()
            assert name in {*Settings.model_fields, "files_url", "secrets_folder"}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["secrets"]["secret"] == {"secretName": "retoma", "defaultMode": 0o440}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)


def test_the_values_and_the_instructions_name_the_same_secrets() -> None:
    (comment,) = re.findall(
        r"^# A Secret of yours\. (.*?)^secretName:", (CHART / "values.yaml").read_text(), re.DOTALL | re.MULTILINE
    )
    (command,) = re.findall(
        r"create secret generic retoma \\\n(.*?)\nhelm", (PROJECT / "docs/deploy.md").read_text(), re.DOTALL
    )
    named = re.findall(r"--from-literal=(\w+)=", command)
    assert "RETOMA_CONNECTIONS_KEY" in named
    assert sorted(named) == sorted(re.findall(r"\b[A-Z]+_[A-Z_]+\b", comment))


def test_every_queue_has_workers_that_keda_scales_by_its_advice() -> None:
    deployments, scaled = render_kind("Deployment"), render_kind("ScaledObject")
    served = []
    for name, each in scaled.items():
        (trigger,) = each["spec"]["triggers"]
        queue = trigger["metadata"]["url"].rpartition("/")[2]
        served.append(queue)
        assert each["spec"]["scaleTargetRef"]["name"] == name
        assert "replicas" not in deployments[name]["spec"]  # an upgrade of the chart does not undo KEDA
        (container,) = deployments[name]["spec"]["template"]["spec"]["containers"]
        assert container["args"][:2] == ["worker", f"--queue={queue}"]
    assert sorted(served) == sorted(retoma_apps.app.queues)


def test_keda_asks_the_service_with_the_key_of_the_secret() -> None:
    ((name, service),) = render_kind("Service").items()
    ((authentication, _),) = render_kind("TriggerAuthentication").items()
    port = service["spec"]["ports"][0]["port"]
    for each in render_kind("ScaledObject").values():
        (trigger,) = each["spec"]["triggers"]
        assert trigger["metadata"]["url"].startswith(f"http://{name}.production:{port}/api/v1/autoscale/")
        assert trigger["authenticationRef"]["name"] == authentication


def test_without_keda_every_queue_has_a_worker() -> None:
    deployments = render_kind("Deployment", NOTHING_OPTIONAL)
    assert all(each["spec"]["replicas"] >= 1 for each in deployments.values())


def test_a_worker_has_time_to_drain() -> None:
    for name, each in render_kind("Deployment").items():
        pod = each["spec"]["template"]["spec"]
        env = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
        if name != "retoma-server":
            assert pod["terminationGracePeriodSeconds"] == int(env["RETOMA_DRAIN_SECONDS"]) + 45


def test_every_deployment_has_a_disruption_budget_of_its_own() -> None:
    deployments, budgets = render_kind("Deployment"), render_kind("PodDisruptionBudget")
    assert deployments.keys() == budgets.keys()
    selectors = [json.dumps(each["spec"]["selector"], sort_keys=True) for each in budgets.values()]
    assert len(set(selectors)) == len(selectors)
    for name, each in deployments.items():
        assert budgets[name]["spec"]["selector"] == each["spec"]["selector"]
        assert each["spec"]["template"]["metadata"]["labels"] == each["spec"]["selector"]["matchLabels"]


def test_servers_are_probed_and_workers_are_not_restarted_for_the_database() -> None:
    for name, each in render_kind("Deployment").items():
        (container,) = each["spec"]["template"]["spec"]["containers"]
        if name == "retoma-server":
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        else:
            assert container["readinessProbe"]["exec"]["command"] == ["retoma", "workers", "check"]
            assert "livenessProbe" not in container


def test_the_schema_is_upgraded_before_servers_and_workers() -> None:
    (job,) = render_kind("Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["db", "upgrade"]
    assert "serviceAccountName" not in job["spec"]["template"]["spec"]  # it does not exist yet


def test_only_the_server_is_reachable() -> None:
    policies = render_kind("NetworkPolicy")
    everything, server = policies["retoma"]["spec"], policies["retoma-server"]["spec"]
    assert everything["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in everything
    assert server["ingress"] == [{"ports": [{"port": 8765, "protocol": "TCP"}]}]
    for pod in render_kind("Deployment").values():
        labels = pod["spec"]["template"]["metadata"]["labels"]
        assert everything["podSelector"]["matchLabels"].items() <= labels.items()
    addresses = [to["ipBlock"] for rule in everything["egress"] for to in rule.get("to", ())]
    assert addresses[0]["except"] == ["169.254.0.0/16"]
