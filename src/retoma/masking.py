"""What is kept out of errors, events and log lines: secrets of this process, its folders, and for some its stacks.

A secret is the value of an environment variable, or of one in `.env`, whose name says so (`is_secret_name`); each of
its lines; what its JSON holds under such a name; and the password or token of any URL in the environment.
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

MIN_SECRET_LENGTH = 8  # characters; a shorter value may be part of any word
MAX_WORD_LENGTH = 12
DOTENV = ".env"

_ENDINGS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
_WORDS = frozenset({"PASS", "PASSWD", "PWD", "PAT", "DSN"})
# `SSH_KEY_FILE` says where a key is, and `TOKEN_TTL` how long one lives.
_DESCRIPTIONS = frozenset({"FILE", "PATH", "DIR", "NAME", "PREFIX", "TTL", "SECONDS", "LENGTH", "ALGORITHM"})
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # folders
_LINES = re.compile(r"\n|\r|\\n|\\r")  # as a newline is also written within one line
_PEM_EDGE = re.compile(r"-{4,}(BEGIN|END) [^-]*-{4,}")
_UNCHANGED = re.compile(r"[A-Za-z0-9]+")
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_HOMES: dict[str, str] = {}  # how they are shown, by folder
_STACK_FILE = re.compile(r'(?<=File ")(/[^"\n]+)(?=", line \d)')
# A word is masked where no letter is next to it; of `%3A` and `\n` the last letter is none of the text's.
_BEFORE_WORD = r"(?:(?<![^\W\d_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[abfnrtv])|(?<=\\u[0-9A-Fa-f]{4}))"
_AFTER_WORD = r"(?![^\W\d_])"


def mask_secrets(text: str) -> str:
    """Return the text with the name of its variable in place of each secret. Mask before you cut."""
    if len(text) >= MIN_SECRET_LENGTH:
        for form in _SECRETS.find_in(text):
            text = form.mask(text)
    return text


def mask_json(value: Any) -> Any:
    """Return the same JSON-like value with every text in it masked; what is no JSON becomes masked text."""
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
    """What an event says, but for where in this server's files an error was met."""
    return {name: each for name, each in data.items() if name != "stack"} if isinstance(data, dict) else data


def register_home(home: Path) -> None:
    """Let `without_folders` replace the path of RETOMA_HOME from now on."""
    _HOMES.update({str(home.absolute()): "[RETOMA_HOME]", str(home.resolve()): "[RETOMA_HOME]"})


def hide_folders(text: str) -> str:
    """Return a message or a stack without this server's folders.

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
    """Find the longest of these folders where a path begins, and not within another path or a URL."""
    longest_first = sorted((re.escape(folder) for folder in folders if folder != "/"), key=len, reverse=True)
    return re.compile(rf"(?:(?<![\w./~-])|(?<=file://))({'|'.join(longest_first)})(?![\w.-])(/?)")


def _replace_folder(replacement: str, found: re.Match[str]) -> str:
    if replacement:
        return replacement + found[2]
    return "" if found[2] else found[1].rpartition("/")[2]


def is_secret_name(name: str) -> bool:
    """Whether one of the words of this name means a secret, and its last word does not say what else it is."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    if name.upper() in _NOT_SECRET or words[-1] in _DESCRIPTIONS:
        return False
    return any(word.rstrip("0123456789").endswith(_ENDINGS) or word.rstrip("0123456789") in _WORDS for word in words)


class _Spelling(NamedTuple):
    """One way to write the secret of a variable. `word` finds it where it is masked only as a whole word."""

    text: str
    name: str
    word: re.Pattern[str] | None

    def mask(self, text: str) -> str:
        shown = f"[{self.name}]"
        return text.replace(self.text, shown) if self.word is None else self.word.sub(lambda _: shown, text)


class _Secrets:
    """All secrets that this process has met. One that leaves the environment again is not forgotten."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # of variables, by secret
        self._spellings: list[tuple[str, list[_Spelling]]] = []  # by what all forms of a secret have in common
        self._seen: tuple[object, object] | None = None

    def find_in(self, text: str) -> list[_Spelling]:
        """Return what may be in this text, the longest first, as one may be part of another."""
        environment, file = _get_environment(), _get_dotenv_version()
        if self._seen != (environment, file):
            self._seen = (dict(environment), file)
            self._reload()
        found = [form for core, forms in self._spellings if core in text for form in forms]
        return sorted(found, key=lambda form: len(form.text), reverse=True)

    def forget(self) -> None:
        self._names, self._spellings, self._seen = {}, [], None

    def _reload(self) -> None:
        names = dict(self._names)  # a copy: other threads may learn at the same time
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
    """What `os.environ` wraps: comparing that takes a microsecond, where a copy takes fifty, for each log line."""
    inside: Mapping[Any, Any] = getattr(os.environ, "_data", None) or dict(os.environ)
    return inside


def _get_dotenv_version() -> tuple[int, int] | None:
    try:
        found = os.stat(DOTENV)  # noqa: PTH116  (a third of the time, and for each log line)
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
    """What a JSON document, such as the key of a service account, holds under the name of a secret."""
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
    """The password; a user alone may be a token, as Sentry's is. One that is the user's name again is no secret."""
    if "://" not in value or "@" not in value:
        return
    try:
        parts = urlsplit(value)
        user, password = parts.username or "", parts.password or ""
    except ValueError:
        return
    given = password or (user if is_token or parts.scheme in ("http", "https") else "")
    if given != user or not password:
        yield from (given, unquote(given))


def _list_spellings(value: str) -> set[str]:
    in_urls = [*(quote(value, safe=safe, errors="replace") for safe in ("", "/")), quote_plus(value, errors="replace")]
    in_lower_case = [_ESCAPE.sub(lambda found: found[0].lower(), written) for written in in_urls]
    in_json = [json.dumps(value, ensure_ascii=ascii_alone)[1:-1] for ascii_alone in (True, False)]
    return {value, repr(value)[1:-1], *in_json, *in_urls, *in_lower_case}


def _find_common_part(value: str) -> str:
    """What every way to write it has in it: looking for that alone, most secrets are soon known not to be in a text."""
    return max(_UNCHANGED.findall(value), key=len, default="")


def _build_word_pattern(spelling: str) -> re.Pattern[str] | None:
    """How to find a short word that is a secret, as a whole word only: `changeme` is no part of `changement`."""
    if len(spelling) < MAX_WORD_LENGTH and spelling.isalpha() and spelling.islower():
        return re.compile(_BEFORE_WORD + re.escape(spelling) + _AFTER_WORD)
    return None
