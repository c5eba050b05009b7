"""The command-line interface. Each command or group of commands has its own module."""

from retoma.cli.commands import main

__all__ = ["main"]
