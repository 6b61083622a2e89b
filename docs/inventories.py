"""Links to the documentation of other projects without a network: inventories for intersphinx, made of external.txt."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sphinx.ext import intersphinx
from sphinx.util import logging

TABLE = Path(__file__).with_name("external.txt")
# Types as docstrings name them, and the classes that they are.
ALIASES = {
    "Generator": "numpy.random.Generator",
    "array": "numpy.ndarray",
    "arrays": "numpy.ndarray",
    "callable": "collections.abc.Callable",
    "data frame": "pandas.DataFrame",
    "mapping": "collections.abc.Mapping",
    "matplotlib axes": "matplotlib.axes.Axes",
    "ndarray": "numpy.ndarray",
    "path": "pathlib.Path",
    "sequence": "collections.abc.Sequence",
}


@dataclass
class Project:
    """The documentation of a project: its address, and the roles and pages of some names."""

    address: str
    names: dict[str, tuple[str, str]] = field(default_factory=dict)

    def inventory(self, name: str) -> bytes:
        """The names in version 2 of Sphinx's format."""
        head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
        lines = [f"{key} py:{role} 1 {page} -" for key, (role, page) in sorted(self.names.items())]
        body = zlib.compress("".join(f"{line}\n" for line in lines).encode())
        return f"{head}# The remainder of this file is compressed using zlib.\n".encode() + body


def read_projects(table: Path = TABLE) -> dict[str, Project]:
    """The projects of the table by name."""
    found: dict[str, Project] = {}
    for line in table.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if line.startswith("#") or not words:
            continue
        if len(words) == 2:
            last = found[words[0]] = Project(words[1])
        else:
            name, role, page = words
            last.names[name] = (role, page)
    return found


def set_mapping(app: Any, config: Any) -> None:
    """Write the inventories beside the pickled pages, and tell intersphinx where they are."""
    folder = Path(app.doctreedir, "inventories")
    folder.mkdir(parents=True, exist_ok=True)
    for name, project in read_projects().items():
        file = folder / f"{name}.inv"
        file.write_bytes(project.inventory(name))
        config.intersphinx_mapping[name] = (project.address, str(file))


def resolve_alias(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Link a type that docstrings name in words; warn about a name of another project that the table lacks."""
    target = node.get("reftarget", "")
    if target in ALIASES:
        node["reftarget"] = ALIASES[target]
    found = intersphinx.missing_reference(app, env, node, contnode)
    if found is None and "." in target and target.split(".")[0] in read_projects():
        logging.getLogger(__name__).warning("%s is not in %s", target, TABLE.name, location=node, type="ref")
    return found


def setup(app: Any) -> dict[str, Any]:
    """Register both, before intersphinx looks at its mapping and at references."""
    app.connect("config-inited", set_mapping, priority=100)
    app.connect("missing-reference", resolve_alias, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
