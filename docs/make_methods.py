"""Write the table of methods.md from the registry of maps: ``python docs/make_methods.py``."""

import re
from pathlib import Path

from mixnmatch import calibrator, calibrators

PAGE = Path(__file__).with_name("methods.md")
TABLE = re.compile(r"(?<=<!-- written by docs/make_methods.py -->\n\n)(\|.*\n)+")


def table() -> str:
    """All short names with what they are, whether they keep accuracy, and the expression that they stand for."""
    lines = ["| name | what it is | keeps accuracy | expression |", "|---|---|---|---|"]
    for each in calibrators():
        expression = " ".join(repr(calibrator(each.name)).split())
        keeps = "yes" if each.accuracy_preserving else "no"
        lines.append(f"| `{each.name}` | {each.summary} | {keeps} | `{expression}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text("utf-8")), encoding="utf-8")
