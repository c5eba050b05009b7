"""Random decisions of steps, derived by hashing, so the model can predict them."""

from __future__ import annotations

import os
import zlib
from hashlib import sha256
from uuid import UUID


def mix(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def child_nonce(nonce: str, item: str) -> str:
    """Return the nonce of the child run that a run starts for this item."""
    return f"{nonce}/{item}"


def chance(of: str, *about: object) -> float:
    """Return a number between 0 and 1 that depends only on the words."""
    return int.from_bytes(sha256(repr((of, *map(str, about))).encode()).digest()[:4]) / 2**32


def fails(run: UUID, step: str, item: str) -> bool:
    """Return whether the step fails permanently, whatever retries are left."""
    return chance("fails", run, step, item) < 0.12


def stops(run: UUID) -> bool:
    return chance("stops", run) < 0.5


def is_wanted(nonce: str, what: str) -> bool:
    return chance("wanted", nonce, what) < 0.6


DECISIONS = ("approve", "send_back", "reject")


def decision(run: UUID, revision: int) -> str:
    """Return the decision of a reviewer: some runs are sent back once."""
    if revision == 1 and chance("sent back", run) < 0.3:
        return "send_back"
    return "reject" if chance("rejected", run) < 0.15 else "approve"


def stumbles(run: UUID, step: str, item: str, attempt: int) -> bool:
    """Return whether this attempt fails; another may succeed."""
    return chance("stumbles", run, step, item, attempt) < 0.3


def trips(run: UUID, step: str, item: str, attempt: int) -> bool:
    """Return whether the first attempt kills its worker; three such deaths quarantine the job."""
    return attempt == 1 and chance("trips", run, step, item) < 0.15


def pace(run: UUID, step: str, item: str) -> float:
    """Return the seconds that a step takes: mostly few, sometimes more. With CHAOS_HURRY=1 all take none."""
    of = chance("pace", run, step, item)
    if os.environ.get("CHAOS_HURRY"):
        return 0.0
    if of < 0.7:
        return of * 0.03
    return (of - 0.7) * 0.8 if of < 0.95 else 0.5 + (of - 0.95) * 30
