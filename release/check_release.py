"""What must be true before a version is tagged and published: ``make release-check``.

It is not part of the tests: until the project has a public repository it fails, and says what is missing.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def problems() -> list[str]:
    """Everything that stands against a release, in words."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mixnmatch"]["release"]
    found = [
        f"pyproject.toml: set {name} under [tool.mixnmatch.release] to its https address, no slash at the end"
        for name in ("repository", "documentation")
        if not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)*", settings[name])
    ]
    version = stated_version()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"src/mixnmatch/_version.py: {version} is not the version of a release, such as 0.2.0")
    found += _texts(version)
    tag = os.environ.get("GITHUB_REF_NAME", "") if os.environ.get("GITHUB_REF_TYPE") == "tag" else ""
    if tag and tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}: the tag should be v{version}")
    if _git("status", "--porcelain"):
        found.append("the working tree has changes that are not committed")
    if not tag and f"v{version}" in _git("tag", "--list").split():
        found.append(f"there is a tag v{version} already: raise the version")
    return found


def stated_version() -> str:
    """The version of the package."""
    text = (ROOT / "src/mixnmatch/_version.py").read_text(encoding="utf-8")
    return re.search(r'__version__ = "([^"]+)"', text)[1]


def changelog_heading() -> tuple[str, str]:
    """Version and date of the newest section of the changelog; the date is what stands in parentheses."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.search(r"^## (\S+) \(([^)]*)\)$", text, re.MULTILINE).groups()


def citation() -> dict[str, str]:
    """Top-level entries of CITATION.cff that are plain values."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w-]+): (\S.*)$", text, re.MULTILINE))


def _texts(version: str) -> list[str]:
    """Whether changelog and citation speak of this version, with the same date."""
    found = []
    newest, date = changelog_heading()
    cited = citation()
    if newest != version:
        found.append(f"CHANGELOG.md: the newest section is {newest}, the version {version}")
    if not _is_date(date):
        found.append(f"CHANGELOG.md: write the day of the release (2026-01-31) in place of {date!r}")
    elif datetime.date.fromisoformat(date) > datetime.date.today():
        found.append(f"CHANGELOG.md: {date} is in the future")
    if cited.get("version") != version or cited.get("date-released") != date:
        stated = f"{cited.get('version')} of {cited.get('date-released')}"
        found.append(f"CITATION.cff: it states {stated}, the changelog {newest} of {date}")
    return found


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    against = problems()
    if against:
        sys.exit("not ready to release:\n" + "\n".join(f"- {one}" for one in against))
    print(f"ready: tag v{stated_version()}")
