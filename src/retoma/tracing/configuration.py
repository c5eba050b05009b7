"""Whether traces are exported, and where to: the standard variables of OpenTelemetry say so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote

from retoma.checks import Finding, get_install_command, list_missing
from retoma.masking import register_secret

EXTRA = "tracing"
SUBJECT = "traces"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PROTOCOL = "http/protobuf"


def find_endpoint() -> str | None:
    """Return where traces are sent, or None if they are off."""
    if _read("OTEL_SDK_DISABLED").lower() == "true" or _read("OTEL_TRACES_EXPORTER").lower() == "none":
        return None
    return _find(_ENDPOINTS)


def explain_problem() -> Finding | None:
    """Return why traces are configured but cannot be exported, or None."""
    if find_endpoint() is None:
        return None
    if missing := list_missing(EXTRA):
        message = f"an OTLP endpoint is set, but {', '.join(missing)} is not installed, so no traces are exported"
        return Finding("warning", SUBJECT, message, f"{get_install_command(EXTRA)}, or unset the endpoint")
    protocol = _find(_PROTOCOLS) or _PROTOCOL
    if protocol != _PROTOCOL:
        message = f"the OTLP protocol {protocol!r} is not supported, so no traces are exported"
        advice = f"set {_PROTOCOLS[1]}={_PROTOCOL}, and the endpoint of that protocol, usually port 4318"
        return Finding("warning", SUBJECT, message, advice)
    return None


def mask_headers() -> None:
    """Mask the values of the headers that authenticate this process at the collector."""
    for name in _HEADERS:
        for pair in _read(name).split(","):
            value = unquote(pair.partition("=")[2]).strip()
            for secret in {value, value.rpartition(" ")[2]} - {""}:  # also without its scheme, such as Bearer
                register_secret(name, secret)


def _find(names: Sequence[str]) -> str | None:
    return next((value for name in names if (value := _read(name))), None)


def _read(name: str) -> str:
    return os.environ.get(name, "").strip()
