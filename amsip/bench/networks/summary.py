"""From the scores of every posterior to one row a network: quartiles, and paired ratios to the base with intervals."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.networks.measure import LONG, STEPS, Cell
from amsip.bench.networks.variants import BASE, NONE

QUARTILES = (0.25, 0.5, 0.75)
INTERVAL = (0.025, 0.975)
RESAMPLES = 2000
Entry = dict[str, Any]
GROUPS: dict[str, Callable[[Entry], bool]] = {
    "all": lambda entry: True,
    "usual kernel": lambda entry: entry["kernel"] == "usual",
    "default kernel": lambda entry: entry["kernel"] == "default",
    "mixtures": lambda entry: entry["place"][2] == "mixtures",
    "pools": lambda entry: entry["place"][2] == "pools",
    "M = 8": lambda entry: entry["place"][1] == 8,
    "M = 32": lambda entry: entry["place"][1] == 32,
    "M = 64": lambda entry: entry["place"][1] == 64,
}


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One row a network; the base and the untrained row must be among the cells.

    Arguments:
        cells: What `measure` returned, on the same held-out posteriors.
    """
    found = {cell["name"]: cell for cell in cells}
    reached = found[NONE]["scores"]
    rows = []
    for cell in cells:
        row = {key: cell[key] for key in ("name", "parameters", "steps", "seconds", "skipped", "pass")}
        row["ratio"] = {str(step): _quartiles(cell["scores"], reached, step) for step in STEPS}
        row["against"] = {
            group: {str(step): versus(cell["scores"], found[BASE]["scores"], step, GROUPS[group]) for step in STEPS}
            for group in GROUPS
            if any(GROUPS[group](entry) for entry in reached)
        }
        rows.append(row)
    return rows


def _quartiles(scores: Sequence[Entry], reached: Sequence[Entry], step: int) -> list[float]:
    pairs = zip(scores, reached, strict=True)
    ratios = torch.cat([_values(own, step) / _values(seeds, LONG) for own, seeds in pairs])
    return [float(v) for v in ratios.quantile(torch.tensor(QUARTILES, dtype=ratios.dtype))]


def versus(
    scores: Sequence[Entry], base: Sequence[Entry], step: int, chosen: Callable[[Entry], bool]
) -> tuple[float, float, float]:
    """The geometric mean of the ratio of discrepancies, posterior by posterior, and a bootstrap interval of 95 percent.

    Posteriors of one batch are alike, and each is seen under both kernels: whole batches are drawn again.

    Example:
        >>> ours = [{"place": (2, 8, "pools", 0), "kernel": "usual", "scores": {"0": [2.0, 8.0]}}]
        >>> base = [{"place": (2, 8, "pools", 0), "kernel": "usual", "scores": {"0": [1.0, 1.0]}}]
        >>> [round(v, 6) for v in versus(ours, base, 0, lambda entry: True)]
        [4.0, 4.0, 4.0]
    """
    batches: dict[tuple[Any, ...], list[Tensor]] = {}
    for own, other in zip(scores, base, strict=True):
        if chosen(own):
            batches.setdefault(tuple(own["place"]), []).append((_values(own, step) / _values(other, step)).log())
    means = torch.stack([torch.cat(logs).mean() for logs in batches.values()])
    draws = torch.randint(len(means), (RESAMPLES, len(means)), generator=torch.Generator().manual_seed(0))
    low, high = means[draws].mean(-1).quantile(torch.tensor(INTERVAL, dtype=means.dtype)).tolist()
    return math.exp(means.mean().item()), math.exp(low), math.exp(high)


def _values(entry: Entry, step: int) -> Float[Tensor, "q"]:
    return torch.tensor(entry["scores"][str(step)], dtype=torch.float64)
