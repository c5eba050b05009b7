"""Whether this process lives, and whether it can do its work."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request

from retoma.client import Client
from retoma.engine import loops
from retoma.errors import RetomaError
from retoma.server.callers import public
from retoma.server.problems import RETRY_AFTER, Problem, documented, of_error, unavailable
from retoma.server.shapes import Health, Readiness

router = APIRouter(tags=["health"], dependencies=[public])
SECONDS = 3.0


@router.get("/healthz", summary="The process lives")
async def healthz() -> Health:
    return Health(status="ok")


@router.get("/readyz", summary="The database answers and its schema is right", responses=documented(503))
async def readyz(request: Request) -> Readiness:
    client: Client = request.app.state.client
    try:
        async with asyncio.timeout(SECONDS):
            await client.database.require_current()
    except TimeoutError:
        raise unavailable() from None
    except RetomaError as error:
        problem = of_error(error)
        raise Problem(503, problem.code, str(problem.detail), headers=RETRY_AFTER) from error
    return Readiness(status="ready", loop_restarts=loops.restarts())
