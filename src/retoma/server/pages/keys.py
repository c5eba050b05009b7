"""The keys of the inbox. The browser reads them from the page (static/keys.js)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retoma.translations import N_

SPACE = " "
SPACE_SIGN = "␣"


@dataclass(frozen=True)
class KeyAction:
    """Something that a key does. `key` is the default: one character, in capitals if it takes Shift."""

    name: str
    key: str
    description: str


KEY_ACTIONS = (
    KeyAction("next", "j", N_("Next review, and skip this one")),
    KeyAction("previous", "k", N_("Previous review")),
    KeyAction("approve", "a", N_("Approve")),
    KeyAction("send_back", "r", N_("Send back")),
    KeyAction("reject", "x", N_("Reject")),
    KeyAction("edit", "e", N_("Edit and approve")),
    KeyAction("undo", "u", N_("Undo the last decision")),
    KeyAction("comment", "c", N_("Comment")),
    KeyAction("mark_start", "i", N_("Comment from this moment")),
    KeyAction("mark_end", "o", N_("Comment up to this moment")),
    KeyAction("play", SPACE, N_("Play or pause")),
    KeyAction("slower", "J", N_("Play backwards or slower")),
    KeyAction("pause", "K", N_("Pause")),
    KeyAction("faster", "L", N_("Play faster")),
    KeyAction("select", "s", N_("Select for a batch")),
    KeyAction("search", "/", N_("Search")),
    KeyAction("help", "?", N_("Show the keys")),
)
DEFAULT_KEYS = {each.name: each.key for each in KEY_ACTIONS}


def describe_key(key: str) -> str:
    """Return a key as it is written on a button: letters as on the keyboard, with an arrow if they take Shift."""
    if key == SPACE:
        return SPACE_SIGN
    return f"⇧{key}" if key.isupper() else key.upper()


def show_space(key: str) -> str:
    """Return a key for a field, in which a space would look empty."""
    return SPACE_SIGN if key == SPACE else key


def read_space(text: str) -> str:
    return SPACE if text == SPACE_SIGN else text


def merge_keys(chosen: Mapping[str, object]) -> dict[str, str]:
    """Return the key of each action: the chosen one, or the default. An action without a key has empty text."""
    return {
        each.name: str(key) if is_key(key := chosen.get(each.name)) else each.key if key is None else ""
        for each in KEY_ACTIONS
    }


def is_key(text: object) -> bool:
    """Return whether the text can be a key: one character that is not a digit, which chooses a picture."""
    return isinstance(text, str) and len(text) == 1 and text.isprintable() and not text.isdigit()


def find_double(keys: Mapping[str, str]) -> str | None:
    """Return a key that two actions have, if any."""
    used = [key for key in keys.values() if key]
    return next((key for key in used if used.count(key) > 1), None)
