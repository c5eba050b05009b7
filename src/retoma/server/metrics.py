"""`/metrics`: what Prometheus reads.

All figures are those of the database, so that every server gives the same ones; only `process_*` and
`retoma_loop_restarts_total` are its own. Each
read costs the database a few looks by index, and one a second at most is made, however many read.
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
from retoma.engine import loops
from retoma.logs import get_logger
from retoma.server import families
from retoma.server.callers import Caller, caller

log = get_logger("retoma.metrics")
router = APIRouter(include_in_schema=False)


@router.get("/metrics")
async def metrics(request: Request, by: Annotated[Caller, caller("metrics:read")]) -> Response:
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Measured(await measured(by.client)))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return Response(encode(registry), headers={"Content-Type": media_type, "Cache-Control": "no-store"})


async def measured(client: Client) -> list[Metric]:
    """The engine's families, and those of the application."""
    found = list(families.of_figures(await client.figures()))
    own, well = await _of_application(client.app, client)
    up = families.gauge(
        "retoma_application_measures_up", "Whether the application could give its own metrics.", [], [[well]]
    )
    return [*found, *own, up, families.of_loops(loops.restarts())]


async def _of_application(app: App | None, client: Client) -> tuple[list[Metric], bool]:
    if app is None or app.measures is None:
        return [], True
    try:
        return list(await app.measures(client)), True
    except Exception:
        # What the application got wrong must not hide how the engine is.
        log.exception("the application could not give its metrics", app=app.name)
        return [], False


class _Measured(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
