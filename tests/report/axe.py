"""Accessibility rules of axe-core, run in a page that is open in a browser."""

import json
from importlib import resources
from importlib.util import find_spec

import pytest

needs_axe = pytest.mark.skipif(find_spec("axe_core_python") is None, reason="axe-core-python is not installed")
_RUN = """axe.run(document).then(found => JSON.stringify(found.violations.flatMap(
  rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')}`))))"""


def violations(browser):
    """What breaks a rule: the rule and where."""
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    source = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.run(f"{source}; 0")
    return json.loads(browser.run(_RUN))
