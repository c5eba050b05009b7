"""A stand-in for DataForSEO's keywords for keywords, with injectable faults.

    standin = StandIn(login="me", password="secret")
    async with standin.serving() as base_url:
        standin.faults.busy = 1
        ...

As a program: python -m standins.keywords
"""

from standins.keywords.server import Faults, StandIn

__all__ = ["Faults", "StandIn"]
