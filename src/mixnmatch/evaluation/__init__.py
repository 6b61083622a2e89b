"""Calibration errors, scores, intervals and tests."""
