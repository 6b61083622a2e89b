"""Files of scores: reading them, with errors that say what to do, and writing calibrated probabilities."""

from mixnmatch.io.files import FileError, ScoreTable, check_output
from mixnmatch.io.formats import (
    Format,
    Request,
    readable_endings,
    register_format,
    unregister_format,
    writable_endings,
)
from mixnmatch.io.read import read_table
from mixnmatch.io.write import write_table

__all__ = [
    "FileError",
    "Format",
    "Request",
    "ScoreTable",
    "check_output",
    "read_table",
    "readable_endings",
    "register_format",
    "unregister_format",
    "writable_endings",
    "write_table",
]
