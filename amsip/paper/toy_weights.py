"""The weights of the toys on fresh seeds: effective sample size, signs and their distribution, for several figures."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.paper import arms
from amsip.paper.arms import FLOOR, REWEIGHT, WARM
from amsip.paper.base import Data, Run
from amsip.paper.parts import kept
from amsip.paper.toy_cells import BANANA, QUICK_SETS, SETS, budgets_of, node_map_of, target
from amsip.paper.trained import toy_digest
from amsip.problems.toys import BASE_SEED, Toy

FRESH_SEED = BASE_SEED + 60_000
TARGETS = {
    "gaussian-2": "Gaussian 2",
    "gaussian-4": "Gaussian 4",
    "gaussian-8": "Gaussian 8",
    "gaussian-16": "Gaussian 16",
    BANANA: "banana 2",
    "mixture-10": "mixture 10",
    "mixture-32": "mixture 32",
    "mixture-64": "mixture 64",
}
QUICK_TARGETS = {"gaussian-2": "Gaussian 2", "gaussian-4": "Gaussian 4", "mixture-10": "mixture 10"}
EDGES = tuple(-1.0 + 0.1 * step for step in range(51))
LARGEST, QUICK_LARGEST = 64, 16


def weight_rows(run: Run) -> list[Data]:
    """A row per target, arm and budget: effective sample size, share of negative weights, score against the floor."""
    rows = []
    for name in QUICK_TARGETS if run.quick else TARGETS:
        node_map = node_map_of(run, name, WARM)
        stamp = {"map": toy_digest(run, name), "sets": QUICK_SETS if run.quick else SETS}
        for m in budgets_of(run):
            part = kept(run, f"{name}-{m:03d}-weights", stamp, partial(_rows, run, name, m, node_map))
            rows += part["rows"]
        run.report(f"{name}: done")
    return rows


def of(rows: Sequence[Data], toy: str, arm: str) -> list[Data]:
    """The rows of an arm on a target, by budget.

    Example:
        >>> of([{"toy": "a", "arm": "warm", "m": 4}], "a", "warm")[0]["m"]
        4
    """
    return sorted((row for row in rows if row["toy"] == toy and row["arm"] == arm), key=lambda row: row["m"])


def toys_in(rows: Sequence[Data]) -> list[str]:
    """The targets, in the paper's order.

    Example:
        >>> toys_in([{"toy": "banana"}, {"toy": "gaussian-2"}])
        ['gaussian-2', 'banana']
    """
    present = {row["toy"] for row in rows}
    return [name for name in TARGETS if name in present]


def histogram(scaled: Float[Tensor, "r m"]) -> list[float]:
    """The shares of the weights M w in the bins of `EDGES`, those outside counted in the first and the last.

    Example:
        >>> histogram(torch.ones(2, 3, dtype=torch.float64))[20]
        1.0
    """
    edges = torch.tensor(EDGES, dtype=scaled.dtype)
    # a weight of exactly 1/M is at an edge: it belongs to the bin that starts there
    place = (torch.searchsorted(edges, scaled.flatten() + 1e-9, right=True) - 1).clamp(0, len(EDGES) - 2)
    counts = torch.bincount(place, minlength=len(EDGES) - 1)
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def fresh_seeds(toy: Toy, m: int, sets: int) -> Float[Tensor, "r m d"]:
    """Seed sets that neither training nor the curves of the other figures use."""
    return toy.draws(sets * m, FRESH_SEED + 1000 * m).reshape(sets, m, toy.dim)


def _rows(run: Run, name: str, m: int, node_map: arms.NodeMap | None) -> Data:
    toy, embedding = target(run, name)
    seeds = fresh_seeds(toy, m, QUICK_SETS if run.quick else SETS)
    found = arms.compare(seeds, embedding, {FLOOR: None, REWEIGHT: None, WARM: node_map})
    rows = []
    for arm in (REWEIGHT, WARM):
        row = arms.summary(arm, found[arm], found[FLOOR]["scores"])
        ess = 1.0 / (m * found[arm]["weights"].square().sum(-1))
        quartiles = ess.quantile(torch.tensor([0.25, 0.75], dtype=ess.dtype)).tolist()
        row |= {"toy": name, "ess_quartiles": quartiles}
        if m == (QUICK_LARGEST if run.quick else LARGEST):
            row["histogram"] = histogram(m * found[arm]["weights"])
        rows.append(row)
    return {"rows": rows}
