"""Files of scores: reading what a model put out, with errors that say what to do, and writing calibrated rows."""

from mixnmatch.io.files import FileError, ScoreTable, check_output
from mixnmatch.io.read import READABLE, read_table
from mixnmatch.io.write import WRITABLE, write_table

__all__ = ["READABLE", "WRITABLE", "FileError", "ScoreTable", "check_output", "read_table", "write_table"]
