"""A stand-in for OpenAI-compatible image services, with injectable faults.

    standin = StandIn(key="secret")
    async with standin.serving() as base_url:
        standin.faults.filtered = 1
        ...

As a program: python -m standins.images
"""

from standins.images.server import Faults, StandIn

__all__ = ["Faults", "StandIn"]
