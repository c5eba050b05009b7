"""Build the OpenAPI document: FastAPI's own, extended for client generators."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import TypeAdapter

from retoma.app import App
from retoma.define.webhook import ENDED, EVENTS
from retoma.server import schemas

_COMPONENTS = "#/components/schemas/"
_WEBHOOK_HEADERS = {
    "webhook-id": "The ID of the delivery, the same for every attempt. Skip IDs that you have already processed.",
    "webhook-timestamp": "The time of this attempt, in Unix seconds.",
    "webhook-signature": "Signatures over id, timestamp and body, as Standard Webhooks defines them.",
}


def build_document(server: FastAPI) -> dict[str, Any]:
    """Return the document. The first call builds it."""
    if server.openapi_schema is None:
        document = server.openapi()
        _name_operations(document, server)
        _add_schema(document, "Problem", schemas.Problem)
        _describe_webhooks(document, server.state.app)
        for schema in document["components"]["schemas"].values():
            _move_defaults_to_descriptions(schema)
    assert server.openapi_schema is not None
    return server.openapi_schema


def _name_operations(document: dict[str, Any], server: FastAPI) -> None:
    """Name each operation after its function, so generated clients keep the same names across releases.

    A route can set another name with `operation_id`; it must do so if its function serves two paths. If two functions
    have the same name, the second operation keeps FastAPI's long id, which is unique.
    """
    taken: set[str] = set()
    for route, operation in _iterate_operations(document, server):
        name = route.operation_id or route.name
        if name and name not in taken:
            operation["operationId"] = name
            taken.add(name)


def _iterate_operations(document: dict[str, Any], server: FastAPI) -> Iterator[tuple[RouteContext, dict[str, Any]]]:
    for route in iter_route_contexts(server.routes):
        item = document["paths"].get(route.path_format, {})
        for method in route.methods or ():
            if method.lower() in item:
                yield route, item[method.lower()]


def _describe_webhooks(document: dict[str, Any], app: App | None) -> None:
    body = _webhook_body_schema(document, () if app is None else app.applications)
    webhooks = document.setdefault("webhooks", {})
    for event in EVENTS:
        if event != ENDED:  # an alias for every final event; no webhook carries this type
            webhooks[event] = {"post": _webhook_operation(event, body)}


def _webhook_body_schema(document: dict[str, Any], applications: Sequence[App]) -> dict[str, Any]:
    """Return the schema of the body: that of the application, or one of several if there are several."""
    found: list[dict[str, Any]] = []
    for body, prefix in [(_webhook_model(each), each.name) for each in applications] or [(schemas.RunEvent, "")]:
        schema = _schema_reference(document, body, prefix)
        if schema not in found:
            found.append(schema)
    return found[0] if len(found) == 1 else {"anyOf": found}


def _webhook_model(application: App) -> Any:
    has_unknown_body = application.webhook_body is not None and application.webhook_schema is None
    return dict[str, Any] if has_unknown_body else application.webhook_schema or schemas.RunEvent


def _webhook_operation(event: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": f"on_{event.replace('.', '_')}",
        "summary": f"Receive a `{event}` event",
        "parameters": [
            {"name": name, "in": "header", "required": True, "schema": {"type": "string"}, "description": text}
            for name, text in _WEBHOOK_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "2XX": {"description": "The delivery succeeded."},
            "410": {"description": "Disables the endpoint: Retoma sends nothing more to this URL."},
            "default": {"description": "The delivery failed and is retried later."},
        },
    }


def _schema_reference(document: dict[str, Any], model: Any, prefix: str) -> dict[str, Any]:
    """Return a reference to the schema of a model, or the schema itself of any other type."""
    if isinstance(model, type) and hasattr(model, "model_json_schema"):
        return _add_schema(document, model.__name__, model, prefix)
    return TypeAdapter(model).json_schema()


def _add_schema(document: dict[str, Any], name: str, model: Any, prefix: str = "") -> dict[str, Any]:
    """Add the schema of a model. If another application has a schema of that name, put `prefix` before this one's."""
    known = document.setdefault("components", {}).setdefault("schemas", {})
    schema = model.model_json_schema(ref_template=_COMPONENTS + "{model}", mode="serialization")
    found = {**schema.pop("$defs", {}), name: schema}
    names = {each: f"{prefix}_{each}" if _is_other(known.get(each), found[each]) else each for each in found}
    for each, definition in found.items():
        known.setdefault(names[each], _rename_references(definition, names))
    known[names[name]] = _rename_references(schema, names)
    return {"$ref": _COMPONENTS + names[name]}


def _is_other(known: dict[str, Any] | None, schema: dict[str, Any]) -> bool:
    return known is not None and known.get("properties", {}).keys() != schema.get("properties", {}).keys()


def _rename_references(schema: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    text = json.dumps(schema)
    for old, new in names.items():
        text = text.replace(f'"{_COMPONENTS}{old}"', f'"{_COMPONENTS}{new}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _move_defaults_to_descriptions(schema: dict[str, Any]) -> None:
    """Make fields with a default optional for every client generator.

    Some generators treat a field with `default` as always present and require it in requests.
    """
    for field in schema.get("properties", {}).values():
        if "default" not in field:
            continue
        default = field.pop("default")
        if default not in (None, "", [], {}):
            text = json.dumps(default, ensure_ascii=False)
            field["description"] = f"{field.get('description', '')} Default: {text}.".strip()
