"""A stand-in for Pexels: its search over clips drawn on this machine, with injectable faults.

    standin = StandIn(key="secret")
    async with standin.serving() as base_url:
        standin.faults.rate_limited = 2
        ...

As a program: python -m standins.footage
"""

from standins.footage.server import Faults, StandIn

__all__ = ["Faults", "StandIn"]
