"""The playground for people who use a keyboard or a screen reader."""

import pytest

from tests.report.axe import needs_axe, violations


@needs_axe
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width, mobile", [(1280, False), (390, True)])
def test_no_rule_is_broken(browser, page_file, width, mobile, dark):
    browser.open(page_file, width=width, mobile=mobile, dark=dark)
    browser.settled()
    assert violations(browser) == []
