"""The HTTP server. An application's own routes are FastAPI routers that use these names:

router = APIRouter()

@router.get("/jobs/{job}")
async def job(job: UUID, by: Annotated[Caller, caller("runs:read")]) -> dict[str, Any]:
    run = await by.client.show(job, tenant=by.tenant)
    ...

A route without `caller` must say so with `dependencies=[public]`, otherwise the server does not start.
"""

from retoma.server.callers import Caller, caller, caller_or_link, public
from retoma.server.pages.episodes import Episode, ended_by, episodes
from retoma.server.pages.page import Page
from retoma.server.pages.visit import Visit
from retoma.server.problems import Problem, binary, documented, problem_of
from retoma.server.sending import asked_part, public_address, send_file
from retoma.server.server import make_server
from retoma.server.shapes import idempotency_key

__all__ = [
    "Caller",
    "Episode",
    "Page",
    "Problem",
    "Visit",
    "asked_part",
    "binary",
    "caller",
    "caller_or_link",
    "documented",
    "ended_by",
    "episodes",
    "idempotency_key",
    "make_server",
    "problem_of",
    "public",
    "public_address",
    "send_file",
]
