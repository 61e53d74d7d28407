"""A training family made for the tests: a name that only an import path reaches."""

import torch

from amsip import Samples, SquaredExponential
from amsip.training import ReferenceTasks


def cloud(dim: int, budgets: tuple[int, ...], batch: int) -> ReferenceTasks:
    """Tasks on 61 normal draws."""
    draws = torch.randn(61, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return ReferenceTasks(Samples(draws), SquaredExponential(0.5), budgets, batch)
