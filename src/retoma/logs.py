"""Log lines: one per event on stderr, as text for people, or as JSON with RETOMA_LOG=json.

Every line has a logger (the module), a level, a message and, if Retoma wrote it, an event name that never changes and
can be searched for. Write one as

    log = get_logger(__name__)
    log.warning("heartbeat_missed", message="could not send a heartbeat; retrying", worker=3, error=error)

Lines of the standard library's `logging` look the same. Their event is `log`, or the one in `extra={"event": ...}`.
Lines written during an attempt, including those of the step's own code, also name its run, step, item and attempt. If
traces are exported, lines of an attempt or a request have the ids of its span, in JSON.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol, cast
from uuid import UUID

import structlog
from structlog.types import Processor

from retoma.errors import get_class_name, read_message
from retoma.masking import mask_json, mask_secrets
from retoma.terminal import escape_text
from retoma.trace_context import CURRENT_SPAN, SpanContext

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
FOREIGN_EVENT = "log"


class Attempt(Protocol):
    """The attempt that the current code runs for; its log lines name these."""

    @property
    def run(self) -> UUID: ...

    @property
    def step(self) -> str: ...

    @property
    def item(self) -> str: ...

    @property
    def attempt(self) -> int: ...


CURRENT_ATTEMPT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
_IS_CONFIGURED = False
_HIDDEN: list[Callable[[Mapping[str, Any]], bool]] = []
_IDS_FOR_PROGRAMS = ("trace_id", "span_id")
_FIRST_KEYS = ("timestamp", "level", "logger", "event", "message")
_FIELD_ORDER = ("worker", "pipeline", "tenant", "run", "step", "item", "attempt")


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the standard library's logger of this name, which takes an event, a message and fields.

    Until `configure_logging` is called, it logs only warnings and errors, as the standard library does.
    """
    processors = [structlog.stdlib.filter_by_level, _drop_hidden, _add_error, _to_record]
    logger = structlog.wrap_logger(logging.getLogger(name), processors, structlog.stdlib.BoundLogger)
    return cast(structlog.stdlib.BoundLogger, logger)


def hide_lines(is_hidden: Callable[[Mapping[str, Any]], bool]) -> None:
    """Do not write Retoma's own lines whose fields this function accepts, in this process: they are expected."""
    _HIDDEN.append(is_hidden)


def configure_logging() -> None:
    """Send every log line to stderr, from the level RETOMA_LOG_LEVEL up (`info` by default)."""
    global _IS_CONFIGURED
    _IS_CONFIGURED = True
    level = LEVELS.get(os.environ.get("RETOMA_LOG_LEVEL", "info").lower(), logging.INFO)
    shared: list[Processor] = [
        _add_attempt,
        _move_message,
        structlog.stdlib.ExtraAdder(),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _order_keys,
                _mask_values,
                _choose_renderer(),
                _mask_line,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # The HTTP client logs every URL, and a URL may contain a secret.
    for name in ("asyncio", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    # It logs each retry of an export, and each span that it drops. Retoma logs when exports begin and end to fail.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def _drop_hidden(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if any(is_hidden(event) for is_hidden in _HIDDEN):
        raise structlog.DropEvent
    return event


def _to_record(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the arguments for the standard library's logger. Handlers other than ours, such as a test's, ignore
    fields: they get the whole line as the message."""
    code = event["event"]
    event["event"] = event.pop("message", code)
    arguments = structlog.stdlib.render_to_log_kwargs(logger, name, event)
    if not _IS_CONFIGURED:
        parts = [code, escape_text(arguments["msg"]), _format_fields(arguments["extra"])]
        arguments["msg"] = mask_secrets("  ".join(filter(None, parts)))
    arguments["extra"]["event"] = code
    return arguments


def _add_error(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an exception by its text, or by its type if it has none, as a timeout."""
    if isinstance(error := event.get("error"), BaseException):
        event["error"] = _describe_error(error) or get_class_name(error)
    return event


def _describe_error(error: BaseException) -> str:
    try:
        return read_message(error)
    except BaseException:  # noqa: BLE001  (`__str__` of an application's error may fail, too)
        return ""


def _add_attempt(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if (of := CURRENT_ATTEMPT.get()) is not None:
        event.setdefault("run", str(of.run))
        event.setdefault("step", of.step)
        event.setdefault("attempt", of.attempt)
        if of.item:
            event.setdefault("item", of.item)
    if (span := CURRENT_SPAN.get()) is not None:
        event = {**describe_span(span.context), **event}
    return event


def describe_span(span: SpanContext) -> dict[str, str]:
    """Return the fields of log lines that belong to a span."""
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


def _move_message(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Move the text of the record to `message`. Its extra fields, added next, may name an event."""
    return {**event, "message": event["event"], "event": FOREIGN_EVENT}


def _order_keys(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {**{name: event[name] for name in _FIRST_KEYS if name in event}, **event}


def _choose_renderer() -> Processor:
    if os.environ.get("RETOMA_LOG", "").lower() == "json":
        return structlog.processors.JSONRenderer(default=str)
    return _format_line


def _mask_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask before rendering: a secret that was indented or escaped would no longer be found."""
    return {name: mask_json(value) for name, value in event.items()}


def _mask_line(_: Any, __: str, line: Any) -> str:
    return mask_secrets(line)  # a number, too, may be a secret


def _format_line(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """`09:12:44 warning  heartbeat_missed  could not send a heartbeat; retrying  worker=3  [retoma.worker.heartbeat]`

    A stack trace follows, indented.
    """
    at = str(event.pop("timestamp", ""))[11:19]
    level = str(event.pop("level", "info"))
    logger = escape_text(str(event.pop("logger", "root")))
    code = escape_text(str(event.pop("event", FOREIGN_EVENT)))
    message = escape_text(str(event.pop("message", "")))
    stack = event.pop("exception", None)
    for name in _IDS_FOR_PROGRAMS:
        event.pop(name, None)
    parts = ["" if code == FOREIGN_EVENT else code, message, _format_fields(event), f"[{logger}]"]
    line = f"{at} {level:<8} {'  '.join(filter(None, parts))}"
    return line if stack is None else "\n    ".join([line, *(escape_text(part) for part in str(stack).splitlines())])


def _format_fields(event: Mapping[str, Any]) -> str:
    names = sorted(event, key=lambda name: _FIELD_ORDER.index(name) if name in _FIELD_ORDER else len(_FIELD_ORDER))
    return " ".join(f"{name}={_format_value(event[name])}" for name in names)


def _format_value(value: Any) -> str:
    text = escape_text(str(value))
    return f'"{text}"' if " " in text else text
