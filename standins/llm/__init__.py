"""A local server that speaks OpenRouter's wire format, for tests and trials without an account.

    standin = StandIn(key="sk-or-test")
    async with standin.serving() as base_url:
        standin.faults.rate_limited = 3
        ...
    standin.tally()

It counts its requests and their cost. Not emulated: streaming, tools, images.
"""

from standins.llm.answers import by_mention
from standins.llm.server import Faults, StandIn

__all__ = ["Faults", "StandIn", "by_mention"]
