"""Inverse problems and targets whose posterior is known, with the constants of the paper's experiments."""
