"""Every example in the README and on the pages of the documentation runs, and prints what the page says it prints.

Blocks of ``python`` of a page share a namespace and run in order, in a directory of their own. A ``text`` block right
after one is what it prints. In ``console`` blocks, lines that start with ``$ mixnmatch`` are run; other commands are
not. The line before a block may be ``<!-- no-test: reason -->``, or ``<!-- needs: package -->`` for a block that is
left out where a package is not installed.
"""

import ast
import io
import re
import runpy
import shlex
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import sklearn
from click.testing import CliRunner
from sklearn.utils.fixes import parse_version

from mixnmatch import calibrators
from mixnmatch.cli.app import cli
from mixnmatch.evaluation.estimators import ESTIMATORS
from mixnmatch.io import formats
from mixnmatch.maps import registry
from mixnmatch.selection.methods import SIMPLICITY

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.md")]
)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
FENCE = re.compile(r"^(`{3,})\s*(\S*)")
MARK = re.compile(r"^<!-- (no-test|needs): (.+) -->$")
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


# Forests with class weights drew other samples before, and the README shows numbers of one.
OLD_FORESTS = parse_version(sklearn.__version__) < parse_version("1.8")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the line it starts on, its text and the mark before it."""

    language: str
    line: int
    text: str
    mark: tuple[str, str] | None
    follows: bool  # only blank lines between this block and the one before


def blocks_of(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    found, start, fence, language, last_end = [], None, "", "", None
    for number, line in enumerate(lines):
        match = FENCE.match(line)
        if start is None and match:
            start, fence, language = number, match[1], match[2]
        elif start is not None and line.strip() == fence:
            before = MARK.match(lines[start - 1].strip()) if start else None
            follows = last_end is not None and not any(text.strip() for text in lines[last_end + 1 : start])
            text = "\n".join(lines[start + 1 : number]) + "\n"
            found.append(Block(language, start + 2, text, (before[1], before[2]) if before else None, follows))
            start, last_end = None, number
    assert start is None, f"a block of {page.name} is not closed"
    return found


def is_run(block):
    if block.mark is None:
        return True
    kind, what = block.mark
    return kind == "needs" and all(find_spec(name.strip()) for name in what.split(","))


def check(got, wanted, where):
    """Words must be the same; numbers may differ by 2%, or by two units of the last digit shown."""
    message = f"{where} prints\n{got}\nbut says\n{wanted}"
    assert NUMBER.sub("#", got).split() == NUMBER.sub("#", wanted).split(), message
    for a, b in zip(NUMBER.findall(got), NUMBER.findall(wanted), strict=True):
        unit = 10.0 ** -len(b.partition(".")[2]) if "." in b else 0.0
        assert float(a) == pytest.approx(float(b), rel=0.02, abs=2.01 * unit), message


def run_python(block, namespace, page):
    # Blank lines before it give the code the line numbers that it has on the page.
    tree = ast.parse("\n" * (block.line - 1) + block.text, filename=str(page))
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(tree, str(page), "exec"), namespace)
    return printed.getvalue()


def commands_of(block):
    """Commands of a console block with what is printed after each."""
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in found]


def run_console(block, page):
    for command, wanted in commands_of(block):
        name, *arguments = shlex.split(command, comments=True)
        if name != "mixnmatch":
            continue
        result = CliRunner().invoke(cli, arguments, prog_name="mixnmatch")
        assert result.exit_code == 0, f"{page.name}: {command}\n{result.output}"
        if wanted.strip():
            check(result.output, wanted, f"{page.name}: {command}")


@pytest.fixture(autouse=True)
def registries():
    """Take out again what a page registers."""
    kept = [(each, dict(each)) for each in (registry.METHODS, registry._registered, ESTIMATORS, formats._added)]
    yield
    for each, before in kept:
        each.clear()
        each.update(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    printed = None
    for block in blocks_of(page):
        if not is_run(block):
            printed = None
        elif block.language == "python":
            printed = run_python(block, namespace, page)
        elif block.language == "text" and block.follows and printed is not None:
            if not (page.name == "README.md" and OLD_FORESTS):
                check(printed, block.text, f"{page.name}, line {block.line}: the block before")
            printed = None
        elif block.language == "console":
            run_console(block, page)
            printed = None
        else:
            printed = None


def test_marks_are_about_blocks():
    for page in PAGES:
        marks = sum(bool(MARK.match(line.strip())) for line in page.read_text(encoding="utf-8").splitlines())
        assert marks == sum(block.mark is not None for block in blocks_of(page)), page.name


def test_relative_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            if path and "://" not in path and not path.startswith("mailto:"):
                assert (page.parent / path).exists(), f"{page.name} links to {target}, which does not exist"


def test_methods_lists_every_method():
    text = (ROOT / "docs" / "methods.md").read_text("utf-8")
    for table in runpy.run_path(str(ROOT / "docs" / "make_methods.py"))["tables"]():
        assert table in text, "run python docs/make_methods.py"
    catalogue = text.partition("## Catalogue")[2].partition("\n## ")[0]
    described = re.findall(r"\*\*(`.*?)\*\*", catalogue, re.DOTALL)
    missing = {line.name for line in calibrators()} - set(re.findall(r"`([a-z-]+)`", " ".join(described)))
    assert not missing, f"no paragraph in the catalogue: {missing}"


def test_choosing_lists_methods_from_simple_to_flexible():
    text = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    table = text[text.index("| group | methods |") :].split("\n\n")[0]
    assert re.findall("`([a-z-]+)`", table) == [name for name in SIMPLICITY if name not in ("identity", "uniform")]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90


LAYERS = (
    "",
    ".maps",
    ".evaluation",
    ".selection",
    ".decisions",
    ".monitoring",
    ".io",
    ".export",
    ".report",
    ".scorers",
)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_reference_has_every_public_name(layer):
    if layer == ".export":
        pytest.importorskip("torch")  # some of its names are those of modules
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = {name.rpartition(".")[2] for name in re.findall(r"auto(?:class|function|exception):: (\S+)", pages)}
    for whole in re.findall(r"automodule:: (\S+)", pages):
        documented.update(import_module(whole).__all__)
    module = import_module(f"mixnmatch{layer}")
    missing = {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)} - documented
    assert missing <= {"__version__"}


def test_getting_started_lists_every_command():
    text = (ROOT / "docs" / "getting_started.md").read_text("utf-8")
    missing = [name for name in cli.list_commands(None) if f"`{name}`" not in text]
    assert not missing


def test_code_is_narrow_enough_for_the_site():
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python":
                wide = [line for line in block.text.splitlines() if len(line) > 88]
                assert not wide, f"{page.name}: {wide[0]}"
