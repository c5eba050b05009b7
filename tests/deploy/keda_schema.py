"""The parts of KEDA's custom resources (keda.sh/v1alpha1) that the files in `deploy/` use, as JSON schemas."""

from __future__ import annotations

from typing import Any

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
# All metadata of a trigger is text.
POLICY = record("type value periodSeconds", type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds=COUNT)
RULES = record(stabilizationWindowSeconds=COUNT, policies=list_of(POLICY))
BEHAVIOUR = record(horizontalPodAutoscalerConfig=record(behavior=record(scaleUp=RULES, scaleDown=RULES)))
TRIGGER = record(
    "type metadata",
    type=TEXT,
    name=TEXT,
    metricType={"enum": ["AverageValue", "Value"]},
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
    fallback=record(
        "failureThreshold replicas",
        failureThreshold=COUNT,
        replicas=COUNT,
        behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
    ),
    advanced=BEHAVIOUR,
    triggers=list_of(TRIGGER),
)
NAMED = record("name", name=TEXT, labels={"type": "object", "additionalProperties": TEXT})


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
