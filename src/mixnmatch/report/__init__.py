"""The HTML report: one self-contained page on how well a model is calibrated and what to do about it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixnmatch.report.build import build_report, write_report
    from mixnmatch.report.data import ReportData
    from mixnmatch.report.page import render

_HOME_OF = {"ReportData": "data", "build_report": "build", "render": "page", "write_report": "build"}

__all__ = ["ReportData", "build_report", "render", "write_report"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module 'mixnmatch.report' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"mixnmatch.report.{home}"), name)
    globals()[name] = value
    return value
