"""The command line. Each command, or group of commands, is a file of this folder."""

from retoma.cli.commands import main

__all__ = ["main"]
