"""Metadata that is made when the package is built: project URLs, and the README with absolute links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
# [text](target) and ![text](target), with a target that is a file of the repository or a place in one.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")
IMAGE_LINE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)\s]+\)\n+", re.MULTILINE)


class MetadataHook(MetadataHookInterface):
    """Fills in the fields that pyproject.toml leaves to it."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description and the URLs."""
        settings = release_settings()
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        version = _version()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, settings["repository"], version),
        }
        metadata["urls"] = project_urls(settings["repository"], settings["documentation"], version)


def release_settings() -> dict[str, str]:
    """Where the project lives, from pyproject.toml; empty texts before it is published."""
    settings: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "mixnmatch"
    ]["release"]
    return settings


def absolute_links(text: str, repository: str, version: str) -> str:
    """Markdown with links to files of a release in place of relative ones.

    Without a repository there is nothing to link to: texts stay without their links, and pictures are left out.
    """
    if not repository:
        return LINK.sub(lambda found: found[2], IMAGE_LINE.sub("", text))

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{found[2]}]({repository}/{kind}/v{version}/{found[3]})"

    return LINK.sub(absolute, text)


def project_urls(repository: str, documentation: str, version: str) -> dict[str, str]:
    """Links beside the long description; none before the project has a place."""
    urls = {}
    if documentation:
        urls["Documentation"] = documentation
    if repository:
        urls["Source"] = repository
        urls["Issues"] = f"{repository}/issues"
        urls["Changelog"] = f"{repository}/blob/v{version}/CHANGELOG.md"
    return urls


def _version() -> str:
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/mixnmatch/_version.py").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]
