"""A page to try calibration in the browser: one HTML file that needs no server and no network."""

from mixnmatch.playground.page import render_playground, write_playground

__all__ = ["render_playground", "write_playground"]
