"""Small tabular problems of KEEL: calibration beside the peers on what most users have."""
