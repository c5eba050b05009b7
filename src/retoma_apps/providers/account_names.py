"""Settings of one of several accounts of a service: the name of the account ends the names of its variables."""

from __future__ import annotations

import re

from retoma_apps.providers.unicode_text import decompose


def is_account(name: str) -> bool:
    """Return whether the name maps to one variable: all its letters and digits are Latin. The empty name is for a
    single account."""
    plain = [letter for letter in decompose(name) if letter.isalnum()]
    return not name or (bool(plain) and all(letter.isascii() for letter in plain))


def format_variable(prefix: str, account: str) -> str:
    """Return the name of an account's variable: `PREFIX_FINANCAS_BR` for `Finanças BR`, `PREFIX` for a single one."""
    bare = decompose(account).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Z0-9]+", "_", bare.upper()).strip("_")
    return f"{prefix}_{name}" if name else prefix
