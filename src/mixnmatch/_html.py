"""HTML from templates: escaping is on, a missing value is an error, and pages may not load anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

Filters = tuple[Callable[..., object], ...]


def render(template: str, *, filters: Filters = (), **context: Any) -> str:
    """Fill in a template.

    Parameters
    ----------
    template : str
        Path in the package, such as ``"report/assets/report.html"``.
    filters : tuple of callables
        Functions that the template uses as filters, by their names.
    **context : Any
        What the template shows. Text is escaped.
    """
    return _environment(filters).get_template(template).render(context)


def closed_page(
    template: str, *, style: str, script: str, embedded: dict[str, Any], filters: Filters = (), **context: Any
) -> str:
    """A whole page that makes no network requests and runs no script but its own.

    Parameters
    ----------
    template : str
        A template that extends ``assets/closed_page.html``.
    style, script : str
        CSS and JavaScript of this package. The policy admits them by their hashes.
    embedded : dict
        What the script reads: JSON values by the id of the element that holds them.
    filters, **context
        As for :func:`render`; ``heading`` is the title of the page.
    """
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return render(template, filters=filters, policy=policy, style=style, script=script, embedded=embedded, **context)


def asset(path: str) -> str:
    """Text of a file of the package, such as ``"report/assets/report.css"``."""
    return resources.files("mixnmatch").joinpath(*path.split("/")).read_text(encoding="utf-8")


@cache
def _environment(filters: Filters) -> Environment:
    # Only pages and notebooks need it: serving a map does not pay for the import.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("mixnmatch", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update({each.__name__: each for each in filters})
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": True, "separators": (",", ":")}
    return made


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
