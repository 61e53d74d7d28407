"""Measurements on real posteriors: what a node is worth to someone who integrates."""
