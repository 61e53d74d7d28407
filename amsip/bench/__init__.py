"""Measurements side by side."""
