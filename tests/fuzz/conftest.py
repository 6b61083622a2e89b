"""Tells at the end how many cases were run."""

from tests.fuzz.running import TOTAL, ran


def pytest_terminal_summary(terminalreporter):
    if TOTAL and ran:
        terminalreporter.section("fuzzing")
        for name, count in sorted(ran.items()):
            terminalreporter.write_line(f"{count:8d}  {name}")
        terminalreporter.write_line(f"{sum(ran.values()):8d}  cases in all")
