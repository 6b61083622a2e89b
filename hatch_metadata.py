"""Metadata that is made when the package is built: project URLs, and the README with absolute links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
# What a link leads to, if it is a file of the repository.
FILE = r"(?!https?:|mailto:|data:|#)[^)\s\"]+"
IMAGE = re.compile(rf"!\[([^\]]*)\]\(({FILE})\)")
LINK = re.compile(rf"\]\(({FILE})\)")
REFERENCE = re.compile(rf"^(\[[^\]]+\]:\s+)({FILE})", re.MULTILINE)
ATTRIBUTE = re.compile(rf'\b(src|srcset|href)="({FILE})"')
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


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
    """Markdown with links to files of a release in place of relative ones; code blocks stay as they are.

    Without a repository there is nothing to link to: texts stay without their links, and pictures are left out.
    """
    change = _with_addresses if repository else _without_links
    parts = FENCE.split(text)  # every second part is a block of code
    return "".join(part if k % 2 else change(part, repository, version) for k, part in enumerate(parts))


def _with_addresses(text: str, repository: str, version: str) -> str:
    raw, blob = f"{repository}/raw/v{version}", f"{repository}/blob/v{version}"
    text = IMAGE.sub(lambda found: f"![{found[1]}]({raw}/{found[2]})", text)
    text = LINK.sub(lambda found: f"]({blob}/{found[1]})", text)
    text = REFERENCE.sub(lambda found: f"{found[1]}{blob}/{found[2]}", text)
    return ATTRIBUTE.sub(lambda found: f'{found[1]}="{blob if found[1] == "href" else raw}/{found[2]}"', text)


def _without_links(text: str, _repository: str, _version: str) -> str:
    pictures = rf'<picture>.*?</picture>|<img [^>]*src="{FILE}"[^>]*>'
    text = re.sub(pictures, "", IMAGE.sub("", text), flags=re.DOTALL)
    text = re.sub(rf"\[([^\]]*)\]\({FILE}\)", r"\1", text)
    text = re.sub(rf'<a [^>]*href="{FILE}"[^>]*>(.*?)</a>', r"\1", text, flags=re.DOTALL)
    return re.sub(r"\n{3,}", "\n\n", REFERENCE.sub("", text))


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
