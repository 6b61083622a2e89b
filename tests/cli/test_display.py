"""Text for people."""

import math

from mixnmatch.cli import display


def test_numbers():
    assert display.number(0.12345) == "0.1235"
    assert display.number(-1e-9) == "0.0000"
    assert display.percent(0.1187) == "11.87%"
    assert display.percent(-1e-9) == "0.00%"
    assert display.number(math.inf) == "inf"
    assert display.between(None) == ""
    assert display.between((0.1, math.nan)) == ""
    assert display.between((0.1, math.inf), display.percent) == "[10.00%, inf]"
    assert display.between((0.1, 0.2), display.percent) == "[10.00%, 20.00%]"


def test_counts():
    assert display.plural(1, "row") == "1 row"
    assert display.plural(2, "class") == "2 classes"
    assert display.plural(2.5, "row") == "2.5 rows"


def test_table_is_aligned():
    text = display.table([("", "before", "after"), ("log loss", "1.2", "0.25"), ("x",)], indent=2)
    assert text.splitlines() == ["            before  after", "  log loss     1.2   0.25", "  x"]
