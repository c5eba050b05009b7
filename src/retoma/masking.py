"""Keep secrets, folders of the server and, for some readers, stacks out of errors, events and log lines.

A secret is the value of a variable in the environment or in `.env` with a name like `API_KEY` (`is_secret_name`); each
line of that value; values with such a name in its JSON; the password or token of any URL in the environment; and the
same of each secret among the settings, from `retoma.toml` or the file that a setting names (`register_secret`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

from dotenv import dotenv_values

MIN_SECRET_LENGTH = 8  # a shorter value may be part of any word
MAX_WORD_LENGTH = 12
DOTENV = ".env"

_ENDINGS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
_WORDS = frozenset({"PASS", "PASSWD", "PWD", "PAT", "DSN"})
# `SSH_KEY_FILE` is the path of a key, and `TOKEN_TTL` a duration.
_DESCRIPTIONS = frozenset({"FILE", "PATH", "DIR", "NAME", "PREFIX", "TTL", "SECONDS", "LENGTH", "ALGORITHM"})
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # folders
_LINES = re.compile(r"\n|\r|\\n|\\r")  # a newline may also be escaped within one line
_PEM_EDGE = re.compile(r"-{4,}(BEGIN|END) [^-]*-{4,}")
_UNCHANGED = re.compile(r"[A-Za-z0-9]+")
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_HOMES: dict[str, str] = {}  # replacement by folder
_STACK_FILE = re.compile(r'(?<=File ")(/[^"\n]+)(?=", line \d)')
# Mask a word only without letters next to it. The last letter of an escape such as `%3A` or `\n` does not count.
_BEFORE_WORD = r"(?:(?<![^\W\d_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[abfnrtv])|(?<=\\u[0-9A-Fa-f]{4}))"
_AFTER_WORD = r"(?![^\W\d_])"


def mask_secrets(text: str) -> str:
    """Replace each secret in the text by the name of its variable. Mask before you truncate."""
    if len(text) >= MIN_SECRET_LENGTH:
        for spelling in _SECRETS.find_in(text):
            text = spelling.mask(text)
    return text


def mask_json(value: Any) -> Any:
    """Return a JSON-like value with every text in it masked. Other objects become masked text."""
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            return {mask_secrets(str(name)): mask_json(each) for name, each in value.items()}
        case list() | tuple():
            return [mask_json(each) for each in value]
        case _:
            return mask_secrets(str(value))


def drop_stack(data: Any) -> Any:
    """Return the data of an event without its stack, which shows the server's files."""
    return {name: each for name, each in data.items() if name != "stack"} if isinstance(data, dict) else data


def register_home(home: Path) -> None:
    """Let `hide_folders` replace the path of RETOMA_HOME from now on."""
    _HOMES.update({str(home.absolute()): "[RETOMA_HOME]", str(home.resolve()): "[RETOMA_HOME]"})


def register_secret(name: str, secret: str) -> None:
    """Let `mask_secrets` replace this secret from now on, which is in no variable of the environment."""
    _SECRETS.add(name, secret)


def hide_folders(text: str) -> str:
    """Remove the server's folders from a message or a stack.

    Files of a stack are named as Python imports them. Elsewhere, RETOMA_HOME and the user's home folder are replaced,
    and files below the current folder or a folder of `sys.path` are named relative to it.
    """
    paths = tuple({str(Path(each).absolute()) for each in (*sys.path, "")} - {"/"})
    text = _STACK_FILE.sub(lambda found: _make_relative(found[1], sorted(paths, key=len, reverse=True)), text)
    folders = dict.fromkeys(paths, "") | {str(Path("~").expanduser()): "~"} | _HOMES
    return _build_folder_pattern(tuple(folders)).sub(lambda found: _replace_folder(folders[found[1]], found), text)


def _make_relative(file: str, folders: list[str]) -> str:
    for folder in folders:
        if file.startswith(f"{folder}/"):
            return file[len(folder) + 1 :]
    return file.rpartition("/")[2]


@lru_cache(maxsize=8)
def _build_folder_pattern(folders: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for the longest of these folders at the start of a path, not within another path or a URL."""
    longest_first = sorted((re.escape(folder) for folder in folders if folder != "/"), key=len, reverse=True)
    return re.compile(rf"(?:(?<![\w./~-])|(?<=file://))({'|'.join(longest_first)})(?![\w.-])(/?)")


def _replace_folder(replacement: str, found: re.Match[str]) -> str:
    if replacement:
        return replacement + found[2]
    return "" if found[2] else found[1].rpartition("/")[2]


def is_secret_name(name: str) -> bool:
    """Return whether a word of this name means a secret, unless its last word describes something else."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    if name.upper() in _NOT_SECRET or words[-1] in _DESCRIPTIONS:
        return False
    return any(word.rstrip("0123456789").endswith(_ENDINGS) or word.rstrip("0123456789") in _WORDS for word in words)


class _Spelling(NamedTuple):
    """One way to write the secret of a variable. `word` is set if it is masked only as a whole word."""

    text: str
    name: str
    word: re.Pattern[str] | None

    def mask(self, text: str) -> str:
        shown = f"[{self.name}]"
        return text.replace(self.text, shown) if self.word is None else self.word.sub(lambda _: shown, text)


class _Secrets:
    """All secrets that this process has seen, including those that were removed from the environment."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # variable names by secret
        self._spellings: list[tuple[str, list[_Spelling]]] = []  # by the common part of all spellings of a secret
        self._seen: tuple[object, object] | None = None

    def find_in(self, text: str) -> list[_Spelling]:
        """Return the spellings that may occur in this text, longest first, since one may be part of another."""
        environment, file = _get_environment(), _get_dotenv_version()
        if self._seen != (environment, file):
            self._seen = (dict(environment), file)
            self._reload()
        found = [spelling for common, spellings in self._spellings if common in text for spelling in spellings]
        return sorted(found, key=lambda spelling: len(spelling.text), reverse=True)

    def add(self, name: str, value: str) -> None:
        whole = [value] if len(value) >= MIN_SECRET_LENGTH and "://" not in value else []
        added = dict.fromkeys([*whole, *_extract_secrets(name, value)], name)
        if not added.keys() <= self._names.keys():
            self._names = {**added, **self._names}
            self._seen = None  # build the spellings again

    def _reload(self) -> None:
        names = dict(self._names)  # a copy: other threads may reload at the same time
        for name, value in {**dotenv_values(DOTENV), **os.environ}.items():
            names |= dict.fromkeys(_extract_secrets(name, value or ""), name)
        self._names = names
        self._spellings = [
            (
                _find_common_part(secret),
                [_Spelling(written, name, _build_word_pattern(written)) for written in _list_spellings(secret)],
            )
            for secret, name in names.items()
        ]


_SECRETS = _Secrets()


def _get_environment() -> Mapping[Any, Any]:
    """Return the mapping inside `os.environ`: comparing it takes 1 µs per log line, a copy of `os.environ` 50 µs."""
    inside: Mapping[Any, Any] = getattr(os.environ, "_data", None) or dict(os.environ)
    return inside


def _get_dotenv_version() -> tuple[int, int] | None:
    try:
        found = os.stat(DOTENV)  # noqa: PTH116  (a third of the time of Path.stat, for each log line)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _extract_secrets(name: str, value: str) -> Iterator[str]:
    value = value.strip()
    found = [*_extract_from_url(value, is_secret_name(name))]
    if is_secret_name(name):
        found += [value, *_split_lines(value), *_extract_from_json(value)]
    return (secret for secret in found if len(secret) >= MIN_SECRET_LENGTH)


def _split_lines(value: str) -> list[str]:
    lines = [line.strip() for line in _LINES.split(value)]
    return [line for line in lines if not _PEM_EDGE.fullmatch(line)] if len(lines) > 1 else []


def _extract_from_json(value: str) -> Iterator[str]:
    """Return values with the name of a secret in a JSON document, such as the key of a service account."""
    try:
        document = json.loads(value) if value.startswith("{") else None
    except (ValueError, RecursionError):
        return iter(())
    return _extract_nested("", document)


def _extract_nested(name: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for inner, each in value.items():
                yield from _extract_nested(inner, each)
        case list():
            for each in value:
                yield from _extract_nested(name, each)
        case str():
            yield from _extract_secrets(name, value)


def _extract_from_url(value: str, is_token: bool) -> Iterator[str]:
    """Yield the password, or a user without a password, which may be a token, as in Sentry's URLs. A password equal to
    the user name is not a secret."""
    if "://" not in value or "@" not in value:
        return
    try:
        parts = urlsplit(value)
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return
    secret = password or (user if is_token or parts.scheme in ("http", "https") else "")
    if secret != user or not password:
        yield from (secret, unquote(secret))


def _list_spellings(value: str) -> set[str]:
    in_urls = [*(quote(value, safe=safe, errors="replace") for safe in ("", "/")), quote_plus(value, errors="replace")]
    in_lower_case = [_ESCAPE.sub(lambda found: found[0].lower(), written) for written in in_urls]
    in_json = [json.dumps(value, ensure_ascii=ascii_alone)[1:-1] for ascii_alone in (True, False)]
    return {value, repr(value)[1:-1], *in_json, *in_urls, *in_lower_case}


def _find_common_part(value: str) -> str:
    """Return a part that all spellings contain. Searching for it first rules out most secrets quickly."""
    return max(_UNCHANGED.findall(value), key=len, default="")


def _build_word_pattern(spelling: str) -> re.Pattern[str] | None:
    """Return a pattern that matches a short secret only as a whole word: `changeme` must not match in `changement`."""
    if len(spelling) < MAX_WORD_LENGTH and spelling.isalpha() and spelling.islower():
        return re.compile(_BEFORE_WORD + re.escape(spelling) + _AFTER_WORD)
    return None
