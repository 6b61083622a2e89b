"""The site links to other projects without a network: every name that it uses is in the table, and exists."""

import importlib.util
import re
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from posixpath import join

import pytest

pytest.importorskip("sphinx")

from sphinx.util.inventory import InventoryFile

DOCS = Path(__file__).parent.parent / "docs"
SOURCES = [*DOCS.glob("*.md"), *(DOCS / "api").glob("*.md"), *(DOCS.parent / "src").rglob("*.py")]
ROLE = re.compile(r"(?::|\{py:)(?:class|func|meth|exc|mod|obj)[:}]`[~!]?([a-z_]+\.[\w.]+)`")


@pytest.fixture(scope="module")
def inventories():
    spec = importlib.util.spec_from_file_location("inventories", DOCS / "inventories.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def used(projects):
    names = {name for file in SOURCES for name in ROLE.findall(file.read_text("utf-8"))}
    return {name for name in names if name.split(".")[0] in projects}


def test_every_external_name_resolves(inventories):
    projects = inventories.read_projects()
    known = {name for project in projects.values() for name in project.names}
    assert used(projects) | set(inventories.ALIASES.values()) <= known
    assert len(used(projects)) > 5


def test_every_name_of_the_table_is_used(inventories):
    projects = inventories.read_projects()
    dotted = {name for project in projects.values() for name in project.names if "." in name}
    assert dotted <= used(projects) | set(inventories.ALIASES.values())


def test_every_name_of_the_table_exists(inventories):
    for project in inventories.read_projects().values():
        for name in project.names:
            module, _, attribute = name.rpartition(".")
            if importlib.util.find_spec((module or "builtins").split(".")[0]) is not None:
                assert hasattr(import_module(module or "builtins"), attribute), name


def test_sphinx_reads_the_inventories(inventories):
    for name, project in inventories.read_projects().items():
        assert project.address.startswith("https://")
        assert project.address.endswith("/")
        read = InventoryFile.load(BytesIO(project.inventory(name)), project.address, join)
        pages = {key: (role, read[f"py:{role}"][key].uri) for key, (role, _) in project.names.items()}
        assert pages == {
            key: (role, project.address + page.replace("$", key)) for key, (role, page) in project.names.items()
        }
