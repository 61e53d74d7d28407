"""Measurements side by side."""

BENCHES = ("bandwidths", "core", "toys", "posteriors")
