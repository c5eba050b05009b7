"""A local server that speaks RunPod's wire format, for tests and trials without a GPU.

    standin = StandIn(workers=3, manual=True)
    async with standin.serving() as base_url:
        ...
        await standin.advance(60)

It keeps its own ledger of requests, as a referee that no database of ours can mislead. Not emulated: /runsync and
/stream.
"""

from standins.gpu.fleet import Fleet, Job
from standins.gpu.server import Faults, StandIn

__all__ = ["Faults", "Fleet", "Job", "StandIn"]
