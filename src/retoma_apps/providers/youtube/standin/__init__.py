"""A local server that speaks YouTube's wire format, for tests and for trying things without an account.

    standin = StandIn()
    async with standin.serving() as origin:
        standin.faults.partial = 3
        ...
    standin.videos

It keeps what it was sent in memory, and is strict where YouTube is: about the size of chunks and where they begin. Not
emulated: quotas by the unit, searching, captions, and videos that are changed after their upload.
"""

from retoma_apps.providers.youtube.standin.server import Faults, StandIn
from retoma_apps.providers.youtube.standin.store import Session, Video

__all__ = ["Faults", "Session", "StandIn", "Video"]
