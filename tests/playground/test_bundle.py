"""The page as a file: what it is made of, and how it is written."""

import re
from importlib import resources

from click.testing import CliRunner

from mixnmatch import __version__
from mixnmatch.cli.app import cli
from mixnmatch.playground import render_playground
from mixnmatch.playground.page import EXPORT, IMPORT, MODULES, bundle


def sources():
    folder = resources.files("mixnmatch.playground").joinpath("assets")
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_modules_import_only_what_earlier_ones_export():
    found = sources()
    assert sorted(name for name in found if name.endswith(".js")) == sorted(f"{name}.js" for name in MODULES)
    exported = {}
    for name in MODULES:
        for wanted, module in IMPORT.findall(found[f"{name}.js"]):
            assert {one.strip() for one in wanted.split(",") if one.strip()} <= exported[module], (name, module)
        exported[name] = set(EXPORT.findall(found[f"{name}.js"]))


def test_nothing_of_the_module_syntax_is_left():
    assert not re.search(r"^\s*(import|export)\b", bundle(), re.MULTILINE)


def test_the_script_cannot_end_its_element():
    page = render_playground()
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("<style>") == page.count("</style>") == 1
    assert "@VERSION@" not in page
    assert "@SAMPLE@" not in page


def test_modules_are_short_and_plain():
    for name, text in sources().items():
        if name.endswith(".js"):
            assert text.count("\n") < 400, name
            assert "innerHTML" not in text, name
            assert "eval(" not in text, name


def test_the_command_writes_the_page(tmp_path):
    path = tmp_path / "page.html"
    run = CliRunner().invoke(cli, ["playground", "-o", str(path)])
    assert run.exit_code == 0, run.output
    assert str(path) in run.output
    assert path.read_text(encoding="utf-8") == render_playground()
    assert f"mixnmatch {__version__}." in path.read_text(encoding="utf-8")
    again = CliRunner().invoke(cli, ["playground", "-o", str(path)])
    assert again.exit_code == 1
    assert "--force" in again.output
    assert CliRunner().invoke(cli, ["playground", "-o", str(path), "--force"]).exit_code == 0
    assert CliRunner().invoke(cli, ["playground", "-o", str(tmp_path / "page.txt")]).exit_code == 1
