"""The HTTP server. An application adds its own routes as FastAPI routers that use these names:

router = APIRouter()

@router.get("/jobs/{job}")
async def job(job: UUID, by: Annotated[Principal, require_scope("runs:read")]) -> dict[str, Any]:
    run = await by.client.runs.get(job)
    ...

A route without `require_scope` must declare `dependencies=[public]`; otherwise the server refuses to start.
"""

from retoma.server.file_response import get_public_url, parse_range, send_file
from retoma.server.pages.badges import BadgeStyle
from retoma.server.pages.differences import diff_results
from retoma.server.pages.graph import get_step_display_state
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.review_summary import build_file_url
from retoma.server.pages.stuck_episodes import StuckEpisode, find_fatal_episode, list_stuck_episodes
from retoma.server.pages.text_changes import Piece, align_entries, compare_texts
from retoma.server.pages.waits import describe_resolution
from retoma.server.principal import Principal, public, require_scope, require_scope_or_link
from retoma.server.problems import Problem, ProblemRoute, document_binary, document_problems, to_problem
from retoma.server.schemas import idempotency_key_header
from retoma.server.server import make_server

__all__ = [
    "BadgeStyle",
    "Page",
    "PageContext",
    "Piece",
    "Principal",
    "Problem",
    "ProblemRoute",
    "StuckEpisode",
    "align_entries",
    "build_file_url",
    "compare_texts",
    "describe_resolution",
    "diff_results",
    "document_binary",
    "document_problems",
    "find_fatal_episode",
    "get_public_url",
    "get_step_display_state",
    "idempotency_key_header",
    "list_stuck_episodes",
    "make_server",
    "parse_range",
    "public",
    "require_scope",
    "require_scope_or_link",
    "send_file",
    "to_problem",
]
