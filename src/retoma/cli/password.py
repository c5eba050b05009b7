"""`retoma password`: what to set so that people can log in to the pages."""

from __future__ import annotations

import sys

import typer

from retoma.engine.admin_sessions import hash_password
from retoma.texts import text


def password() -> None:
    """Ask for the password of the pages, and print the setting that holds its hash.

    The password itself is kept nowhere. With a pipe instead of a terminal it is the first line of the input.

    \b
    retoma password >> .env
    """
    print(f"RETOMA_ADMIN_PASSWORD_HASH='{hash_password(_read_password())}'")


def _read_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    given: str = typer.prompt(text("password"), hide_input=True, confirmation_prompt=True, err=True)
    return given
