"""A stand-in for Pexels: its search over clips drawn on this machine, with injectable faults.

    standin = StandIn(key="secret")
    async with standin.serving() as base_url:
        standin.faults.rate_limited = 2
        ...

As a program: python -m retoma_apps.providers.footage.standin
"""

from retoma_apps.providers.footage.standin.server import Faults, StandIn

__all__ = ["Faults", "StandIn"]
