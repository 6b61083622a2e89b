"""Pages in one file: style, script and data are inside, and a content security policy forbids to load anything."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any


def closed_page(
    heading: str, body: str, *, style: str, script: str, data: dict[str, Any], script_type: str | None = None
) -> str:
    """A whole page that makes no network requests and runs no script but its own.

    Parameters
    ----------
    heading : str
        Title of the page.
    body : str
        Content, HTML.
    style, script : str
        CSS and JavaScript. The policy admits them by their hashes.
    data : dict
        What the script reads: JSON values by the id of the element that holds them.
    script_type : str, optional
        Type of the script, such as "module".
    """
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    elements = "".join(
        f'<script type="application/json" id="{escape(name)}">{safe_json(value)}</script>\n'
        for name, value in data.items()
    )
    kind = "" if script_type is None else f' type="{escape(script_type)}"'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<title>{escape(heading)}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n'
        f"{body}\n{elements}<script{kind}>{script}</script>\n</body>\n</html>\n"
    )


def safe_json(value: Any) -> str:
    """JSON that cannot end the element it is in, nor start another."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
