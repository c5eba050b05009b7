"""`/metrics` for Prometheus.

Almost all metrics come from the database, so every server returns the same values. Only `process_*`, `python_info`,
`retoma_loop_restarts_total`, `retoma_http_*` and `retoma_application_metrics_up` describe the server process itself. A
snapshot costs a few index lookups and is taken at most once per second, no matter how many scrapers read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from retoma.app import App
from retoma.client import Client
from retoma.engine import background_loops
from retoma.logs import get_logger
from retoma.server import prometheus_format
from retoma.server.principal import Principal, require_scope
from retoma.settings import Settings

log = get_logger(__name__)
router = APIRouter(include_in_schema=False)


@router.get("/metrics")
async def get_metrics(request: Request, by: Annotated[Principal, require_scope("metrics:read")]) -> Response:
    settings: Settings = request.app.state.settings
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _SnapshotCollector(
            [
                *await collect_metrics(by.client),
                *prometheus_format.format_requests(request.app.state.request_rate),
                *prometheus_format.format_review_targets(
                    settings.review_target_minutes * 60, settings.review_first_pass_target
                ),
            ]
        )
    )
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return Response(encode(registry), headers={"Content-Type": media_type, "Cache-Control": "no-store"})


async def collect_metrics(client: Client) -> list[Metric]:
    """Return the metrics of the engine and of the application."""
    found = list(prometheus_format.format_snapshot(await client.metrics.get_all()))
    collected = (
        [await _collect_application_metrics(each, client) for each in client.app.applications if each.metrics]
        if client.app
        else []
    )
    up = prometheus_format.make_gauge(
        "retoma_application_metrics_up",
        "1 if the application's own metrics were collected.",
        [],
        [[all(own is not None for own in collected)]],
    )
    return [
        *found,
        *prometheus_format.format_retention(await client.retention.get_totals()),
        *(metric for own in collected for metric in own or ()),
        up,
        prometheus_format.format_loop_restarts(background_loops.count_restarts()),
    ]


async def _collect_application_metrics(app: App, client: Client) -> list[Metric] | None:
    """Return the metrics of one application, or None if it failed to return them."""
    assert app.metrics is not None
    try:
        return list(await app.metrics(client.scope_to(app)))
    except Exception:
        # A bug in the application's metrics must not hide those of the engine.
        log.exception(
            "application_metrics_failed", message="the application failed to return its metrics", app=app.name
        )
        return None


class _SnapshotCollector(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
