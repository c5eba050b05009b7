"""A local server that speaks YouTube's wire format, for tests and trials without an account.

    standin = StandIn()
    async with standin.serving() as origin:
        standin.faults.partial = 3
        ...
    standin.videos

It keeps uploads in memory and is strict where YouTube is: about the size and the start of chunks. Not emulated: quota
units, searching, captions, and changes to videos after their upload.
"""

from standins.youtube.server import Faults, StandIn
from standins.youtube.store import Session, Video

__all__ = ["Faults", "Session", "StandIn", "Video"]
