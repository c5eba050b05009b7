"""Read secrets from a folder with one file for each, as systemd, Compose and Kubernetes provide them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import typer

FOLDER_VARIABLE = "RETOMA_SECRETS_FOLDER"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


def load_secrets() -> None:
    """Set an environment variable for each file in RETOMA_SECRETS_FOLDER that is named like one, unless it is set.

    Subprocesses inherit the variables, and their values are masked like those of any other variable.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    try:
        for file in Path(folder).iterdir():
            if _VARIABLE.fullmatch(file.name) and file.is_file():
                os.environ.setdefault(file.name, file.read_text(encoding="utf-8").rstrip("\r\n"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read the secrets in {FOLDER_VARIABLE}={folder}: {error}") from None
