"""The files around a release agree with each other: version, changelog, citation, metadata, checks and workflows."""

import datetime
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from mixnmatch import __version__

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
README = (ROOT / "README.md").read_text("utf-8")


def script(path):
    """A file of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def build_hook(monkeypatch):
    """The metadata hook, with a stand-in for the build tool, which the tests do not need."""
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    return script("hatch_metadata.py")


@pytest.fixture(scope="module")
def check():
    return script("release/check_release.py")


def test_one_version_everywhere(check):
    assert check.stated_version() == __version__
    assert "version" in PYPROJECT["project"]["dynamic"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/mixnmatch/_version.py"
    assert check.citation()["version"] == __version__
    assert check.changelog_heading()[0] == __version__


def test_the_changelog_is_dated_as_the_citation_is(check):
    date = check.changelog_heading()[1]
    datetime.date.fromisoformat(date)
    assert check.citation()["date-released"] == date


def test_a_release_needs_addresses_and_one_date(check, tmp_path, monkeypatch):
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    (tmp_path / "src/mixnmatch").mkdir(parents=True)
    (tmp_path / "src/mixnmatch/_version.py").write_text((ROOT / "src/mixnmatch/_version.py").read_text())
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "_git", lambda *_: "")
    monkeypatch.delenv("GITHUB_REF_TYPE", raising=False)
    project = tmp_path / "pyproject.toml"
    filled = re.sub(
        r'^(repository|documentation) = ".*"', r'\1 = "https://example.org/\1"', project.read_text(), flags=re.M
    )
    empty = re.sub(r'^(repository|documentation) = ".*"', r'\1 = ""', filled, flags=re.M)
    project.write_text(empty)
    assert sum("[tool.mixnmatch.release]" in problem for problem in check.problems()) == 2
    project.write_text(filled)
    late = [problem for problem in check.problems() if "in the future" not in problem]
    assert late == []
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(re.sub(r"\(\d{4}-\d\d-\d\d\)", "(unreleased)", changes.read_text("utf-8"), count=1), "utf-8")
    assert any("write the day" in problem for problem in check.problems())
    monkeypatch.setattr(check, "_git", lambda *_: f"v{__version__}")
    assert any("already" in problem for problem in check.problems())
    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")
    monkeypatch.setenv("GITHUB_REF_NAME", "v9.9.9")
    assert any("v9.9.9" in problem for problem in check.problems())


MARKDOWN = """[guide](docs/a.md#top) and [site](https://example.com) and [part](#part)
[![badge](docs/b.svg)](docs/c.md)
<picture><source srcset="docs/dark.png"><img src="docs/light.png" alt="x"></picture>
<a href="docs/d.md">more</a> and [by name][e]

[e]: docs/e.md

```python
maps[0](scores)
```
"""


def test_links_of_the_long_description_are_absolute(build_hook):
    for text in (README, MARKDOWN):
        made = build_hook.absolute_links(text, "https://example.org/me/project", "1.2.3")
        outside = re.sub(r"^```.*?^```$", "", made, flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r"\]\(([^)]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", outside)
        assert len(targets) > 5
        assert all("".join(target).startswith(("https://", "#")) for target in targets)
    assert made.splitlines()[1] == (
        "[![badge](https://example.org/me/project/raw/v1.2.3/docs/b.svg)]"
        "(https://example.org/me/project/blob/v1.2.3/docs/c.md)"
    )
    assert 'src="https://example.org/me/project/raw/v1.2.3/docs/light.png"' in made
    assert "[e]: https://example.org/me/project/blob/v1.2.3/docs/e.md" in made
    assert "maps[0](scores)" in made


def test_without_a_repository_there_are_no_dead_links(build_hook):
    for text in (README, MARKDOWN):
        made = build_hook.absolute_links(text, "", "1.2.3")
        assert not re.findall(r"\]\((?!https:|#|scores)|=\"docs/", made)
        assert "docs/" not in re.sub(r"`[^`]*`", "", made)
    assert made.startswith("guide and [site](https://example.com) and [part](#part)")
    assert "maps[0](scores)" in made
    assert build_hook.project_urls("", "", "1.2.3") == {}


def test_project_urls(build_hook):
    urls = build_hook.project_urls("https://example.org/me/project", "https://example.org/docs", "1.2.3")
    assert set(urls) == {"Documentation", "Source", "Issues", "Changelog"}
    assert urls["Changelog"].endswith("/v1.2.3/CHANGELOG.md")


def test_classifiers_name_the_versions_that_are_tested():
    stated = [c.rpartition(" ")[2] for c in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    assert stated == re.findall(r'"(3\.\d+)"', workflow)
    assert PYPROJECT["project"]["requires-python"] == f">={stated[0]}"


def recipe(target):
    """Commands of a target of the Makefile, without the folder of the environment."""
    body = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    return [line.strip().removeprefix("$(BIN)/") for line in body.splitlines()]


def test_pre_commit_runs_what_make_check_runs():
    hooks = re.findall(r"^\s+entry: \.venv/bin/(.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    # There files are named one by one, and those that ruff should leave out must be named again.
    plain = [hook.replace(" --force-exclude", "") for hook in hooks]
    assert plain == [command.removesuffix(" .") for command in recipe("check")]


def test_workflows_run_what_the_repository_runs():
    assert re.findall(r"- run: (.+)", (ROOT / ".github/workflows/ci.yml").read_text()) == [".ci/run"]
    release = re.findall(r"- run: (.+)", (ROOT / ".github/workflows/release.yml").read_text())
    assert release == ["make release-check", "make dist"]
    commands = re.findall(r"^make (\S+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert commands == ["check", "test", "docs", "dist"]
    for command in (*commands, "release-check"):
        assert recipe(command)
