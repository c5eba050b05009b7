"""Log lines: their form, and the events that the code logs and the documentation lists."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from retoma import logs

ROOT = Path(__file__).parents[1]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
NAMED_LOGGER = re.compile(r"^log = (get_logger|logging\.getLogger)\(__name__\)$", re.MULTILINE)
ANY_LOGGER = re.compile(
    r"(\w+ = )?((logging\.)?getLogger|get_logger)\([^)]|logging\.(debug|info|warning|error|exception|critical)\("
)
EVENT_NAME = re.compile(r"[a-z]+(_[a-z]+)+")
FIXED_KEYS = ["timestamp", "level", "logger", "event", "message"]
OpenLog = Callable[[str], Callable[[], list[str]]]


@dataclass(frozen=True)
class LogCall:
    place: str
    level: str
    event: str | None  # None if it is not a literal
    has_message: bool


@dataclass
class ExampleAttempt:
    run: UUID
    step: str = "render"
    item: str = "page-1"
    attempt: int = 2


@pytest.fixture
def open_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenLog]:
    """Log to a list of lines, in this form of RETOMA_LOG."""
    added: list[logging.Handler] = []

    def start(form: str) -> Callable[[], list[str]]:
        lines: list[str] = []
        monkeypatch.setenv("RETOMA_LOG", form)
        monkeypatch.setattr(logs, "_IS_CONFIGURED", False)
        monkeypatch.setattr(logging, "basicConfig", lambda **given: added.extend(given["handlers"]))
        logs.configure_logging()
        (handler,) = added
        handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        return lambda: lines

    yield start
    for handler in added:
        logging.getLogger().removeHandler(handler)


def test_a_json_line_has_logger_event_and_message(open_log: OpenLog) -> None:
    lines = open_log("json")
    logs.get_logger("retoma.worker.heartbeat").warning(
        "heartbeat_missed", message="could not send a heartbeat; retrying", worker=3, error=TimeoutError()
    )
    (line,) = map(json.loads, lines())
    assert list(line)[:5] == FIXED_KEYS
    del line["timestamp"]
    assert line == {
        "level": "warning",
        "logger": "retoma.worker.heartbeat",
        "event": "heartbeat_missed",
        "message": "could not send a heartbeat; retrying",
        "worker": 3,
        "error": "TimeoutError",
    }


def test_a_line_for_people_has_event_message_fields_and_logger(open_log: OpenLog) -> None:
    lines = open_log("")
    logs.get_logger("retoma.worker.heartbeat").warning(
        "heartbeat_missed", message="could not send a heartbeat; retrying", worker=3
    )
    (line,) = lines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d warning  heartbeat_missed  could not send a heartbeat; retrying  worker=3  "
        r"\[retoma\.worker\.heartbeat\]",
        line,
    )


@pytest.mark.parametrize(("extra", "event"), [({}, "log"), ({"event": "page_printed"}, "page_printed")])
def test_lines_of_the_standard_library_come_out_alike(open_log: OpenLog, extra: dict[str, str], event: str) -> None:
    lines = open_log("json")
    logging.getLogger("printer").warning("printed %d pages", 3, extra={"pages": 3, **extra})
    (line,) = map(json.loads, lines())
    assert list(line)[:5] == FIXED_KEYS
    assert (line["logger"], line["event"], line["message"], line["pages"]) == ("printer", event, "printed 3 pages", 3)


def test_a_library_line_for_people_has_no_event(open_log: OpenLog) -> None:
    lines = open_log("")
    logging.getLogger("printer\n").warning("out of\npaper")
    (line,) = lines()
    assert line[9:] == r"warning  out of\npaper  [printer\n]"


def test_extra_fields_cannot_replace_level_logger_or_time(open_log: OpenLog) -> None:
    lines = open_log("json")
    logging.getLogger("printer").warning("no paper", extra={"level": "x", "logger": "y", "timestamp": "z"})
    (line,) = map(json.loads, lines())
    assert (line["level"], line["logger"], line["timestamp"][:2]) == ("warning", "printer", "20")


def test_a_line_names_the_attempt_that_wrote_it(open_log: OpenLog) -> None:
    lines = open_log("json")
    attempt = ExampleAttempt(uuid4())
    token = logs.CURRENT_ATTEMPT.set(attempt)
    try:
        logging.getLogger("printer").warning("no paper")
    finally:
        logs.CURRENT_ATTEMPT.reset(token)
    (line,) = map(json.loads, lines())
    assert (line["run"], line["step"], line["item"], line["attempt"]) == (str(attempt.run), "render", "page-1", 2)


def test_each_module_logs_through_one_logger_named_after_itself() -> None:
    """The other tests see only the calls of `log`."""
    others = {
        f"{path.relative_to(ROOT)}:{node.lineno}": ast.unparse(node)
        for path in SOURCES
        if path != Path(logs.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.stmt) and _uses_another_logger(ast.unparse(node))
    }
    assert others == {}


@pytest.mark.parametrize(
    "source",
    [
        "getLogger(__name__).warning('x')",
        "logging.getLogger(__name__).error('x')",
        "logging.warning('x')",
        "logger = get_logger(__name__)",
        "log = getLogger(__name__)",
        "log = logging.getLogger('retoma')",
    ],
)
def test_another_logger_is_recognised(source: str) -> None:
    assert _uses_another_logger(source)


def _uses_another_logger(source: str) -> bool:
    """Whether one statement creates or calls a logger in another way than as `log`."""
    if "\n" in source or NAMED_LOGGER.fullmatch(source):
        return False
    return ANY_LOGGER.match(source) is not None


def test_each_log_call_has_an_event_name_and_a_message() -> None:
    wrong = [
        call.place
        for call in list_log_calls()
        if call.event is None or not EVENT_NAME.fullmatch(call.event) or not call.has_message
    ]
    assert wrong == []


def test_each_event_name_is_used_once() -> None:
    places: dict[str | None, list[str]] = {}
    for call in list_log_calls():
        places.setdefault(call.event, []).append(call.place)
    assert {event: found for event, found in places.items() if len(found) > 1} == {}


def test_the_documentation_lists_all_warnings_and_errors() -> None:
    text = (ROOT / "docs" / "reference" / "log-events.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    logged = [(call.event, call.level) for call in list_log_calls() if call.level in ("warning", "error")]
    assert sorted(listed) == sorted(logged)


def list_log_calls() -> list[LogCall]:
    """Return every call of a logger in src/."""
    return [call for path in SOURCES for call in _list_calls_of(path)]


def _list_calls_of(path: Path) -> Iterator[LogCall]:
    source = path.read_text()
    has_logger = NAMED_LOGGER.search(source) or path.name == "supervisor.py"  # which has its own
    for node in ast.walk(ast.parse(source)) if has_logger else ():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ):
            yield _read_call(node, LEVELS[node.func.attr], f"{path.relative_to(ROOT)}:{node.lineno}")


def _read_call(node: ast.Call, level: str, place: str) -> LogCall:
    """Read a call of Retoma's logger, or one of the standard library's with its event in `extra`."""
    arguments = {keyword.arg: keyword.value for keyword in node.keywords}
    if "extra" in arguments:
        extra = ast.literal_eval(arguments["extra"])
        return LogCall(place, level, extra.get("event"), has_message=bool(node.args))
    event = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    return LogCall(place, level, str(event) if event else None, has_message="message" in arguments)
