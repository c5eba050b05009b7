"""The workflows for n8n: their nodes are joined, their expressions give what the routes take, and their check of
signatures lets through what Retoma signs and nothing else. Expressions and code are run by Node, as n8n runs them."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from retoma import signing
from retoma_apps.gpu.models import Img2VidJob
from retoma_apps.gpu.routes import router
from retoma_apps.gpu.states import Status
from retoma_apps.videos.operations.decisions import CheckpointDecision
from tests.system_packages import require

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "n8n"
FILES = sorted(FOLDER.glob("*.json"))
SECRET = "a secret that both sides know"
PLACEHOLDER = "https://retoma.example.com"
COMPLETED = {
    "jobId": "orc-550e8400",
    "id_roteiro": 34,
    "status": "COMPLETED",
    "operation": "img2vid",
    "result": {"code": 200, "videos": [{"id": "1", "video_url": "https://s3/ação.mp4", "filename": "video_1.mp4"}]},
}
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)

# Reads {kind, source, names} and gives what n8n would: of an expression its value, of code its items.
NODE = """
const { kind, source, names } = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const scope = { ...names, require };
if (names.$input) scope.$input = { first: () => names.$input };
if (names.nodes) scope.$ = (name) => (
  { item: names.nodes[name], first: () => names.nodes[name], isExecuted: name in names.nodes });
const value = (text) => new Function(...Object.keys(scope), `return (${text})`)(...Object.values(scope));
async function run() {
  if (kind === 'code') {
    const AsyncFunction = (async () => {}).constructor;
    const helpers = { getBinaryDataBuffer: async () => Buffer.from(names.raw, 'base64') };
    return new AsyncFunction(...Object.keys(scope), source).call({ helpers }, ...Object.values(scope));
  }
  if (!source.startsWith('=')) return source;
  const parts = source.slice(1).split(/\\{\\{([\\s\\S]*?)\\}\\}(?!\\))/);
  if (parts.length === 3 && !parts[0] && !parts[2]) return value(parts[1]);
  return parts.map((part, place) => (place % 2 ? value(part) : part)).join('');
}
run().then((found) => console.log(JSON.stringify(found ?? null)));
"""


def by_node(kind: str, source: str, **names: Any) -> Any:
    require(shutil.which("node") is not None, "node (Debian: apt-get install nodejs)")
    values = json.dumps(
        {
            "kind": kind,
            "source": source,
            "names": {f"${name}" if name in DOLLAR else name: value for name, value in names.items()},
        }
    )
    ended = subprocess.run(["node", "-e", NODE], input=values, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


DOLLAR = {"json", "env", "execution", "input", "itemIndex"}


def workflow(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def node(name: str, of: str) -> dict[str, Any]:
    (found,) = (node for node in workflow(of)["nodes"] if node["name"] == name)
    return dict(found["parameters"])


def value(source: str, **names: Any) -> Any:
    return by_node("expression", source, **names)


@every_file
def test_every_node_has_a_unique_name_id_and_position(file: Path) -> None:
    nodes = json.loads(file.read_text(encoding="utf-8"))["nodes"]
    for what in ("name", "id", "position"):
        assert len({str(node[what]) for node in nodes}) == len(nodes)


@every_file
def test_every_node_is_reachable_from_a_trigger(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    after = {
        name: {target["node"] for branch in joined["main"] for target in branch}
        for name, joined in found["connections"].items()
    }
    reached: set[str] = set()
    ahead = {node["name"] for node in found["nodes"] if node["type"] == "n8n-nodes-base.webhook"}
    while ahead:
        reached |= ahead
        ahead = {target for name in ahead for target in after.get(name, ())} - reached
    assert reached == {node["name"] for node in found["nodes"]}


@every_file
def test_every_branch_of_every_condition_is_connected(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    for question in found["nodes"]:
        outcomes = _outcomes(question)
        if outcomes > 1:
            assert [len(branch) for branch in found["connections"][question["name"]]["main"]] == [1] * outcomes


def _outcomes(node: dict[str, Any]) -> int:
    if node["type"] == "n8n-nodes-base.switch":
        return len(node["parameters"]["rules"]["values"]) + 1
    return 2 if node["type"] == "n8n-nodes-base.if" or node.get("onError") == "continueErrorOutput" else 1


@every_file
def test_a_workflow_has_an_id(file: Path) -> None:
    # Without one `n8n import:workflow` of newer versions fails.
    assert re.fullmatch("[A-Za-z0-9]{16}", json.loads(file.read_text(encoding="utf-8"))["id"])


@every_file
def test_no_file_contains_a_secret_or_an_address(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace(PLACEHOLDER, "")
    assert "http://" not in text
    assert "https://" not in text
    assert "rtm_" not in text
    assert "whsec_" not in text


@every_file
def test_requests_send_the_key_and_outlast_a_restart(file: Path) -> None:
    nodes = json.loads(file.read_text(encoding="utf-8"))["nodes"]
    for request in (node for node in nodes if node["type"] == "n8n-nodes-base.httpRequest"):
        assert request["credentials"]["httpHeaderAuth"]["name"] == "Retoma (X-API-Key)"
        assert (request["retryOnFail"], request["maxTries"], request["waitBetweenTries"]) == (True, 5, 5000)


def test_a_job_is_submitted_with_the_fields_of_the_route() -> None:
    parameters = node("Enviar imagens", "submit-and-wait")
    script = {
        "id": 34,
        "canal": "Canal",
        "titulo": 'As "aspas"',
        "imagens": [{"id": "1", "image_url": "https://images/1.png", "duracao": 5.32}],
    }
    names = {
        "json": {"body": script, "retoma_url": "https://retoma"},
        "execution": {"id": "812", "resumeUrl": "https://n8n/webhook-waiting/812"},
    }
    assert parameters["method"] == "POST"
    assert value(parameters["url"], **names) == "https://retoma/video/img2vid/async"
    body = json.loads(value(parameters["jsonBody"], **names))
    assert body.keys() <= Img2VidJob.model_fields.keys()
    assert Img2VidJob.model_validate(body).webhook_url == "https://n8n/webhook-waiting/812"
    assert body == {
        "id_roteiro": 34,
        "webhook_url": "https://n8n/webhook-waiting/812",
        "path": 'Canal/As "aspas"/videos/temp/',
        "images": [{"id": "1", "image_url": "https://images/1.png", "duracao": 5.32}],
    }


def test_the_urls_match_existing_routes() -> None:
    routes = {(method, route.path) for route in router.routes for method in getattr(route, "methods", ())}  # type: ignore[attr-defined]
    assert ("POST", node("Enviar imagens", "submit-and-wait")["url"].rpartition("}}")[2]) in routes
    assert ("GET", "/jobs/{job}") in routes


@pytest.mark.parametrize(("of", "name"), [("submit-and-wait", "Enviar imagens"), ("video-approval", "Pedir o vídeo")])
def test_a_repeated_submission_sends_the_same_key(of: str, name: str) -> None:
    (header,) = node(name, of)["headerParameters"]["parameters"]
    assert header["name"] == "Idempotency-Key"
    # The moment is data: n8n's own retries of the node do not change it. Another n8n, whose executions count from 1
    # again, has another moment, and two items of one execution have two keys.
    body = {"json": {"momento": 1763300000000}, "execution": {"id": "812"}, "itemIndex": 1}
    assert value(header["value"], **body) == "n8n-1763300000000-812-1"
    (moment,) = (one for one in node("Configuração", of)["assignments"]["assignments"] if one["name"] == "momento")
    assert moment["value"] == "={{ $now.toMillis() }}"


def test_the_job_is_stored_and_its_callback_awaited_by_post() -> None:
    nodes = {
        "Configuração": {"json": {"retoma_url": "https://retoma"}},
        "Enviar imagens": {"json": {"jobId": "orc-1", "statusUrl": "/jobs/orc-1"}},
    }
    assert value(node("Consultar o job", "submit-and-wait")["url"], nodes=nodes) == "https://retoma/jobs/orc-1"
    waiting = node("Esperar o callback", "submit-and-wait")
    assert (waiting["resume"], waiting["httpMethod"]) == ("webhook", "POST")
    assert (waiting["limitWaitTime"], waiting["resumeAmount"], waiting["resumeUnit"]) == (True, 15, "minutes")


def test_a_callback_only_wakes_the_workflow_which_then_queries_the_job() -> None:
    # So that a forged callback costs one request, and changes nothing.
    found = workflow("submit-and-wait")["connections"]
    assert found["Esperar o callback"]["main"] == [[{"node": "Consultar o job", "type": "main", "index": 0}]]
    assert _at(COMPLETED, node("Vídeos", "submit-and-wait")["fieldToSplitOut"])


@pytest.mark.parametrize(
    ("status", "next_node"),
    [
        ("COMPLETED", "Vídeos"),
        ("QUEUED", "Esperar o callback"),
        ("IN_PROGRESS", "Esperar o callback"),
        ("FAILED", "Falhou"),
        ("CANCELLED", "Falhou"),
    ],
)
def test_the_workflow_continues_only_when_the_job_is_completed(status: Status, next_node: str) -> None:
    rules = node("Status", "submit-and-wait")["rules"]["values"]
    met = [holds(rule, status) for rule in rules]
    branch = met.index(True) if True in met else len(rules)
    assert workflow("submit-and-wait")["connections"]["Status"]["main"][branch][0]["node"] == next_node


def holds(rule: dict[str, Any], status: Status) -> bool:
    """Whether a rule of a Switch node takes a job of this status."""
    (condition,) = rule["conditions"]["conditions"]
    left = value(condition["leftValue"], json={"status": status})
    return left is True if condition["operator"]["type"] == "boolean" else bool(left == condition["rightValue"])


def test_a_failed_job_stops_the_workflow_with_its_error() -> None:
    message = node("Falhou", "submit-and-wait")["errorMessage"]
    failed = {"jobId": "orc-1", "status": "FAILED", "error": {"code": "TIMEOUT", "message": "too long"}}
    assert value(message, json=failed) == "orc-1: FAILED TIMEOUT too long"
    assert value(message, json={"jobId": "orc-1", "status": "CANCELLED"}).startswith("orc-1: CANCELLED")


def test_a_callback_signed_by_retoma_is_accepted() -> None:
    assert run_signature_check(**sign()) == {"authentic": "true", "reason": "", "id": "msg-1", "body": COMPLETED}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"secret": "another"}, "wrong signature"),
        ({"body": b'{"status": "COMPLETED"}'}, "wrong signature"),
        ({"headers": {"x-webhook-signature": ""}}, "wrong signature"),
        ({"headers": {"x-webhook-signature": "ção" * 21}}, "wrong signature"),
        ({"headers": {"x-webhook-signature": "0" * 63}}, "wrong signature"),
        ({"headers": {"x-webhook-timestamp": ""}}, "no timestamp"),
        ({"headers": {"x-webhook-timestamp": "1e9"}}, "no timestamp"),
        ({"secret": ""}, "WEBHOOK_SECRET is not set in n8n"),
    ],
)
def test_a_callback_with_another_signature_is_rejected(change: dict[str, Any], reason: str) -> None:
    signed_headers = sign()
    headers = signed_headers["headers"] | change.pop("headers", {})
    found = run_signature_check(**(signed_headers | {"headers": headers} | change))
    assert found["authentic"] == "false"
    assert found["reason"] == reason
    assert found["body"] is None


def test_a_timestamp_other_than_the_signed_one_is_rejected() -> None:
    headers = sign()
    later = {"x-webhook-timestamp": str(int(headers["headers"]["x-webhook-timestamp"]) + 1)}
    assert run_signature_check(**(headers | {"headers": headers["headers"] | later}))["reason"] == "wrong signature"


@pytest.mark.parametrize("shift", [-330, 330])
def test_an_old_signature_is_rejected(shift: int) -> None:
    assert run_signature_check(**sign(shift))["reason"] == "not signed just now"


@pytest.mark.parametrize("shift", [-270, 270])
def test_clocks_may_differ_by_almost_five_minutes(shift: int) -> None:
    assert run_signature_check(**sign(shift))["authentic"] == "true"


def test_the_signature_covers_the_received_bytes() -> None:
    assert node("Receber callback", "webhook-trigger")["options"]["rawBody"] is True
    spaced = json.dumps(COMPLETED, indent=3, ensure_ascii=False).encode()
    assert run_signature_check(**sign(body=spaced))["authentic"] == "true"


def test_signatures_are_compared_in_constant_time() -> None:
    assert "timingSafeEqual(given, expected)" in node("Verificar assinatura", "webhook-trigger")["jsCode"]


def test_only_authentic_callbacks_are_answered_with_200() -> None:
    found = workflow("webhook-trigger")
    accepted, refused = (branch[0]["node"] for branch in found["connections"]["Autêntico?"]["main"])
    answers = {name: node(name, "webhook-trigger")["options"]["responseCode"] for name in (accepted, refused)}
    assert list(answers.values()) == [200, 401]
    (condition,) = node("Autêntico?", "webhook-trigger")["conditions"]["conditions"]
    assert value(condition["leftValue"], json={"authentic": "true"}) == condition["rightValue"] == "true"


def test_a_check_that_crashes_is_answered_with_500_so_retoma_resends() -> None:
    (check,) = (node for node in workflow("webhook-trigger")["nodes"] if node["name"] == "Verificar assinatura")
    assert check["onError"] == "continueErrorOutput"
    broken = workflow("webhook-trigger")["connections"]["Verificar assinatura"]["main"][1][0]["node"]
    assert node(broken, "webhook-trigger")["options"]["responseCode"] == 500


def test_a_repeated_callback_is_used_once() -> None:
    once = node("Só uma vez", "webhook-trigger")
    assert once["operation"] == "removeItemsSeenInPreviousExecutions"
    assert value(once["dedupeValue"], nodes={"Verificar assinatura": {"json": {"id": "msg-1"}}}, json={}) == "msg-1"


@pytest.mark.parametrize(
    ("kind", "form", "decision"),
    [
        (
            "script_review",
            {"Decisão": "Aprovar", "Observações": "", "Revisor": "Ana"},
            {"action": "approved", "reviewer": "Ana"},
        ),
        (
            "audio_review",
            {"Decisão": "Devolver", "Observações": "mais curto", "Capa": 2},
            {"action": "revision_requested", "notes": "mais curto"},
        ),
        ("final_review", {"Decisão": "Aprovar", "Capa": "2"}, {"action": "approved", "thumbnail": 2}),
    ],
)
def test_an_n8n_form_becomes_a_decision(kind: str, form: dict[str, Any], decision: dict[str, Any]) -> None:
    body = node("Decidir", "video-approval")["jsonBody"]
    nodes = {"Ponto": {"json": {"body": {"checkpoint_type": kind, "revision": 3}}}}
    sent = json.loads(value(body, json=form, nodes=nodes))
    assert sent == decision | {"seen": 3}
    assert CheckpointDecision.model_validate(sent)


def test_every_option_of_the_n8n_form_is_a_decision() -> None:
    decision = node("Aprovação", "video-approval")["formFields"]["values"][0]
    options = [each["option"] for each in decision["fieldOptions"]["values"]]
    nodes = {"Ponto": {"json": {"body": {"checkpoint_type": "script_review", "revision": 1}}}}
    body = node("Decidir", "video-approval")["jsonBody"]
    sent = [json.loads(value(body, json={decision["fieldLabel"]: each}, nodes=nodes))["action"] for each in options]
    assert sent == ["approved", "revision_requested", "rejected"]


CHECKPOINT = {
    "checkpoint_type": "audio_review",
    "review_url": "https://retoma/reviews/1",
    "data": {
        "title": "A <script>",
        "script_text": "one\ntwo",
        "audio_url": "https://retoma/a.wav?expires=1&signature=2",
    },
}


def test_a_form_escapes_its_content_and_plays_signed_links() -> None:
    page = render_form({"Ponto": {"json": {"body": CHECKPOINT}}}, {"body": CHECKPOINT})
    assert page.startswith("A &#60;script&#62;<br>one<br>two<br>")
    assert '<source src="https://retoma/a.wav?expires=1&#38;signature=2">' in page
    assert '<a href="https://retoma/reviews/1" target="_blank">' in page


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"statusCode": 422, "body": {"detail": "<i> cannot be followed"}}, "&#60;i&#62; cannot be followed"),
        ({"error": "ECONNREFUSED"}, "o Retoma não respondeu"),
    ],
)
def test_a_form_after_a_rejection_says_why(answer: dict[str, Any], message: str) -> None:
    page = render_form({"Ponto": {"json": {"body": CHECKPOINT}}, "Decidir": {}}, answer)
    assert page.startswith(f"<strong>O Retoma recusou a decisão: {message}</strong><br>A &#60;script")


def render_form(nodes: dict[str, Any], values: dict[str, Any]) -> str:
    fields = {one["name"]: one["value"] for one in node("Formulário", "video-approval")["assignments"]["assignments"]}
    return str(value(fields["page"], nodes=nodes, json=values))


def test_each_video_becomes_an_item() -> None:
    code = node("Vídeos", "webhook-trigger")["jsCode"]
    nodes = {"Verificar assinatura": {"json": {"body": COMPLETED}}}
    assert by_node("code", code, nodes=nodes, raw="") == [{"json": COMPLETED["result"]["videos"][0]}]  # type: ignore[index]


def sign(shift: int = 0, body: bytes | None = None) -> dict[str, Any]:
    raw = json.dumps(COMPLETED, ensure_ascii=False).encode() if body is None else body
    seconds = int(time.time()) + shift
    headers = {
        "webhook-id": "msg-1",
        "x-webhook-timestamp": str(seconds),
        "x-webhook-signature": signing.sign_hex(SECRET, seconds, raw),
    }
    return {"headers": headers, "body": raw, "secret": SECRET}


def run_signature_check(headers: dict[str, str], body: bytes, secret: str) -> dict[str, Any]:
    code = node("Verificar assinatura", "webhook-trigger")["jsCode"]
    (item,) = by_node(
        "code",
        code,
        env={"WEBHOOK_SECRET": secret},
        input={"json": {"headers": headers, "body": json.loads(body)}},
        raw=base64.b64encode(body).decode(),
    )
    return dict(item["json"])


def _at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values[name]
    return values
