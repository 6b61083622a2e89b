"""Write the two tables of methods.md from the registry of maps: ``python docs/make_methods.py``."""

import re
from pathlib import Path

from mixnmatch import calibrator, calibrators

PAGE = Path(__file__).with_name("methods.md")
MARK = "<!-- written by docs/make_methods.py -->\n\n"
TABLE = re.compile(rf"(?<={re.escape(MARK)})(?:\|.*\n)+")


def tables() -> tuple[str, str]:
    """All short names with what they are and whether they keep accuracy, and with the expressions they stand for."""
    names = ["| name | what it is | keeps accuracy |", "|---|---|---|"]
    expressions = ["| name | expression |", "|---|---|"]
    for each in calibrators():
        names.append(f"| `{each.name}` | {each.summary} | {'yes' if each.accuracy_preserving else 'no'} |")
        expressions.append(f"| `{each.name}` | `{' '.join(repr(calibrator(each.name)).split())}` |")
    return "\n".join(names) + "\n", "\n".join(expressions) + "\n"


if __name__ == "__main__":
    new = iter(tables())
    PAGE.write_text(TABLE.sub(lambda _: next(new), PAGE.read_text("utf-8")), encoding="utf-8")
