"""Who acts: a person, an API key, the command line, the developer of `retoma dev`, a program, or the engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ActorKind(StrEnum):
    PERSON = "person"
    KEY = "key"
    COMMAND_LINE = "command_line"
    DEVELOPER = "developer"
    PROGRAM = "program"
    ENGINE = "engine"


@dataclass(frozen=True)
class Actor:
    """`id` is the number of the person or key, and the name for the other kinds. Events keep the `name`.

    `address` is the one that the request came from, if there was a request.
    """

    kind: ActorKind
    id: str
    name: str
    address: str | None = None
