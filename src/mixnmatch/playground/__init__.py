"""A page to try calibration in the browser: one HTML file that computes by itself and makes no network requests."""

from mixnmatch.playground.page import render_playground, write_playground

__all__ = ["render_playground", "write_playground"]
