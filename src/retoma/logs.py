"""How logs look: one line for each event on stderr, for people, or as JSON with RETOMA_LOG=json.

Lines of structlog and of the standard library come out alike. Each line that is written while a step's function
runs, by the function too, says which run, step, item and attempt it belongs to.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol, cast
from uuid import UUID

import structlog
from structlog.types import Processor

from retoma.masking import mask_json, mask_secrets
from retoma.terminal import escape_text

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Attempt(Protocol):
    """What the lines of one attempt tell of it."""

    run: UUID
    step: str
    item: str
    attempt: int


CURRENT_ATTEMPT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
_IS_CONFIGURED = False
_FIELD_ORDER = ("worker", "pipeline", "tenant", "run", "step", "item", "attempt")


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger of the standard library that takes what it tells by name. Unless set up, it says only warnings."""
    processors = [structlog.stdlib.filter_by_level, _add_error, _to_record]
    logger = structlog.wrap_logger(logging.getLogger(name), processors, structlog.stdlib.BoundLogger)
    return cast(structlog.stdlib.BoundLogger, logger)


def configure_logging() -> None:
    """Send every log line to stderr, from the level RETOMA_LOG_LEVEL up (`info` unless set)."""
    global _IS_CONFIGURED
    _IS_CONFIGURED = True
    level = LEVELS.get(os.environ.get("RETOMA_LOG_LEVEL", "info").lower(), logging.INFO)
    shared: list[Processor] = [
        _add_attempt,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _mask_values,
                _choose_renderer(),
                _mask_line,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Those of the HTTP client tell every URL, and a URL may be as good as a key.
    for name in ("asyncio", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _to_record(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return what the standard library's logger takes. Other handlers, as a test's, know no fields: they get a line."""
    made = structlog.stdlib.render_to_log_kwargs(logger, name, event)
    if not _IS_CONFIGURED and (fields := _format_fields(made["extra"])):
        made["msg"] = mask_secrets(f"{escape_text(made['msg'])}  {fields}")
    return made


def _add_error(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """An error that says nothing, as a timeout does, is told by its name."""
    if isinstance(error := event.get("error"), BaseException):
        event["error"] = _describe_error(error) or type(error).__name__
    return event


def _describe_error(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (an error of an application may fail even at saying what it is)
        return ""


def _add_attempt(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if (of := CURRENT_ATTEMPT.get()) is not None:
        event.setdefault("run", str(of.run))
        event.setdefault("step", of.step)
        event.setdefault("attempt", of.attempt)
        if of.item:
            event.setdefault("item", of.item)
    return event


def _choose_renderer() -> Processor:
    if os.environ.get("RETOMA_LOG", "").lower() == "json":
        return structlog.processors.JSONRenderer(default=str)
    return _format_line


def _mask_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Before they are written: indented or escaped once more, a secret is not found any longer."""
    return {name: mask_json(value) for name, value in event.items()}


def _mask_line(_: Any, __: str, line: Any) -> str:
    return mask_secrets(line)  # a number, too, may be a secret


def _format_line(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """`09:12:44 warning  a worker fell silent  worker=3 jobs=4`; a stack trace follows, indented."""
    at = str(event.pop("timestamp", ""))[11:19]
    level = str(event.pop("level", "info"))
    said = escape_text(str(event.pop("event", "")))
    stack = event.pop("exception", None)
    values = _format_fields(event)
    line = f"{at} {level:<8} {said}" + (f"  {values}" if values else "")
    return line if stack is None else "\n    ".join([line, *(escape_text(part) for part in str(stack).splitlines())])


def _format_fields(event: Mapping[str, Any]) -> str:
    names = sorted(event, key=lambda name: _FIELD_ORDER.index(name) if name in _FIELD_ORDER else len(_FIELD_ORDER))
    return " ".join(f"{name}={_format_value(event[name])}" for name in names)


def _format_value(value: Any) -> str:
    text = escape_text(str(value))
    return f'"{text}"' if " " in text else text
