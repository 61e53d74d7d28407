"""Measurements side by side."""

BENCHES = ("bandwidths", "core", "toys", "default", "networks", "posteriors")
