"""`retoma password`: hash the dashboard's administrator password."""

from __future__ import annotations

import sys

import typer

from retoma.cli.messages import gettext
from retoma.engine.admin_sessions import hash_password


def password() -> None:
    """Hash a password for the dashboard and print it as a setting.

    Prompts for the password, or reads the first line of stdin if it is not a terminal. The password is not stored.

    \b
    Example:
      retoma password >> .env
    """
    print(f"RETOMA_ADMIN_PASSWORD_HASH='{hash_password(_read_password())}'")


def _read_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    entered: str = typer.prompt(gettext("Password"), hide_input=True, confirmation_prompt=True, err=True)
    return entered
