"""Liveness and readiness checks."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request

from retoma.client import Client
from retoma.engine import background_loops
from retoma.errors import RetomaError
from retoma.server.principal import public
from retoma.server.problems import RETRY_AFTER, Problem, database_unavailable, document_problems, to_problem
from retoma.server.schemas import Health, Readiness

router = APIRouter(tags=["health"], dependencies=[public])
TIMEOUT_SECONDS = 3.0


@router.get("/healthz", summary="Check that the process is running")
async def get_health() -> Health:
    return Health(status="ok")


@router.get(
    "/readyz",
    summary="Check that the database is reachable and its schema is current",
    responses=document_problems(503),
)
async def get_readiness(request: Request) -> Readiness:
    client: Client = request.app.state.client
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await client.database.require_current()
    except TimeoutError:
        raise database_unavailable() from None
    except RetomaError as error:
        problem = to_problem(error)
        raise Problem(503, problem.code, str(problem.detail), headers=RETRY_AFTER) from error
    return Readiness(status="ready", loop_restarts=background_loops.count_restarts())
