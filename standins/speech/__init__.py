"""A local server that speaks Azure's and ElevenLabs' wire formats, for tests and trials without an account.

    standin = StandIn(key="test")
    async with standin.serving() as base_url:
        standin.faults.rate_limited = 3
        ...
    standin.tally()

Its speech is a tone as long as the words would take. Not emulated: lists of voices, streaming, batches.
"""

from standins.speech.server import Faults, StandIn

__all__ = ["Faults", "StandIn"]
