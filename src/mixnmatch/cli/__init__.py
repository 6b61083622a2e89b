"""The command line, ``mixnmatch``. Nothing numerical is imported before a command needs it."""

from mixnmatch.cli.app import main

__all__ = ["main"]
