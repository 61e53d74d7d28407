"""The comparison with Stein variational descent: its targets, the tuning for each budget, and the cells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.kernels import SquaredExponential, Whitened
from amsip.maps.svgd import BANDWIDTHS, ITERATIONS, RATES, Svgd, TunedSvgd, tune_svgd
from amsip.paper import arms
from amsip.paper.arms import FLOOR, REWEIGHT
from amsip.paper.base import Data, Run
from amsip.paper.parts import kept
from amsip.pretrained import load_card
from amsip.problems.toys import Toy, five_modes, gaussian_toy
from amsip.references.base import Embedding, Score
from amsip.whitening import Whitening

SVGD, SVGD_REWEIGHTED = "svgd", "svgd-reweighted"
SMOOTH, SMALL, MODES, EIGHT = "gaussian-2", "gaussian-2-table", "five-modes", "gaussian-8"
WIDE = 0.5
BASE, TUNING = 20260613, 2_000_000
REPEATS, TUNING_REPEATS = 64, 16
QUICK_REPEATS, QUICK_TUNING = 6, 3
QUICK_BUDGETS = (4, 16)
GRID: dict[str, Any] = {"bandwidths": BANDWIDTHS, "rates": RATES, "iterations": ITERATIONS}
QUICK_GRID: dict[str, Any] = {"bandwidths": (None, 1.0), "rates": (0.1, 0.5), "iterations": (20, 50)}


@dataclass(frozen=True, eq=False)
class Target:
    """A target of the comparison and the ruler on it.

    Arguments:
        toy: The target, in the coordinates in which the sampler moves.
        bandwidth: Of the ruler.
        chart: The coordinates in which rules are scored and our nodes move; the same when not given.

    Example:
        >>> target = Target(gaussian_toy(8), 8**0.5, Whitening.of_moments(*gaussian_toy(8).reference().moments()))
        >>> bool((target.ruler().energy - target.own_ruler().energy).abs() < 1e-12)
        True
    """

    toy: Toy
    bandwidth: float
    chart: Whitening | None = None

    @property
    def score(self) -> Score:
        """The exact score that the sampler reads."""
        score = self.toy.reference().score
        assert score is not None
        return score

    def seeds(self, m: int, sets: int, offset: int = 0) -> Float[Tensor, "sets m d"]:
        """The draws of each repeat, from a generator of its own."""
        return torch.stack([self.toy.draws(m, BASE + offset + 1000 * m + r) for r in range(sets)])

    def inside(self, points: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m d"]:
        """Points in the coordinates of the ruler."""
        return points if self.chart is None else self.chart.forward(points)

    def ruler(self) -> Embedding:
        """The embedding in the coordinates of the ruler."""
        kernel, reference = SquaredExponential(self.bandwidth), self.toy.reference()
        return (reference if self.chart is None else reference.whiten(self.chart)).embed(kernel)

    def own_ruler(self) -> Embedding:
        """The same embedding in the coordinates of the sampler, for its tuning."""
        kernel = SquaredExponential(self.bandwidth)
        return self.toy.reference().embed(kernel if self.chart is None else Whitened(kernel, self.chart))


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """The three panels, and the first at the bandwidth of the paper's table.

    Example:
        >>> [round(target.bandwidth, 4) for target in targets().values()]
        [0.5, 0.1648, 4.9806, 2.8284]
    """
    smooth, modes, eight = gaussian_toy(2), five_modes(), gaussian_toy(8)
    return {
        SMOOTH: Target(smooth, WIDE),
        SMALL: Target(smooth, smooth.bandwidth),
        MODES: Target(modes, modes.bandwidth),
        EIGHT: Target(eight, math.sqrt(8), Whitening.of_moments(*eight.reference().moments())),
    }


def svgd_rows(run: Run, name: str, budgets: Sequence[int]) -> list[Data]:
    """A row for each arm at each budget, with the setting that the sampler was tuned to.

    Arguments:
        run: Where tunings and cells are kept.
        name: The target.
        budgets: The values of M.
    """
    rows = []
    target = targets()[name]
    repeats, tuning = (QUICK_REPEATS, QUICK_TUNING) if run.quick else (REPEATS, TUNING_REPEATS)
    for m in budgets:
        stamp: Data = {"bandwidth": target.bandwidth, "repeats": tuning, "grid": QUICK_GRID if run.quick else GRID}
        setting = kept(run, f"svgd-{name}-{m:03d}-tuned", stamp, partial(_tuned, run, target, m, tuning))
        run.report(f"{name}, M = {m}: tuned to {_shown(setting)}")
        stamp = {**stamp, "repeats": repeats, "setting": setting, "map": load_card("universal").sha256}
        part = kept(run, f"svgd-{name}-{m:03d}", stamp, partial(cell, target, m, repeats, setting))
        rows += part["rows"]
        run.report(f"{name}, M = {m}: done")
    return rows


def cell(target: Target, m: int, repeats: int, setting: Data) -> Data:
    """Every arm at a budget: rows of `amsip.paper.arms.summary`, and the ratio of each score to the tuned sampler's.

    Arguments:
        target: Which.
        m: The budget.
        repeats: How many sets.
        setting: The sampler's `bandwidth`, `rate` and `steps`.
    """
    own, ruler = target.seeds(m, repeats), target.ruler()
    found = arms.compare(target.inside(own), ruler, {FLOOR: None, REWEIGHT: None, **arms.BESIDE})
    sampler = Svgd(target.score, setting["bandwidth"], setting["rate"], setting["steps"])
    cloud = sampler(own)
    # a repeat that leaves the floats keeps its draws, and is counted
    stable = torch.isfinite(cloud).all(-1).all(-1)
    cloud = target.inside(torch.where(stable[:, None, None], cloud, own))
    for arm, weights_arm in ((SVGD, FLOOR), (SVGD_REWEIGHTED, REWEIGHT)):
        weights = arms.weights_of(weights_arm, cloud, ruler)
        found[arm] = {"nodes": cloud, "weights": weights, "scores": arms.scores_of(cloud, weights, ruler)}
    floor, sampled = found[FLOOR]["scores"], found[SVGD]["scores"]
    rows = []
    for arm, part in found.items():
        over = {
            "over_svgd": arms.middle(part["scores"]) / arms.middle(sampled),
            "over_svgd_interval": list(arms.ratio_interval(part["scores"], sampled)),
        }
        rows.append({**arms.summary(arm, part, floor), **over})
    tuned = {"setting": setting, "unstable": int((~stable).sum())}
    return {"rows": [{**row, **(tuned if row["arm"] == SVGD else {})} for row in rows]}


def _tuned(run: Run, target: Target, m: int, repeats: int) -> Data:
    grid = QUICK_GRID if run.quick else GRID
    tuned = tune_svgd(target.score, target.seeds(m, repeats, TUNING), target.own_ruler(), **grid)
    return {
        "bandwidth": tuned.svgd.bandwidth,
        "rate": tuned.svgd.rate,
        "steps": tuned.svgd.steps,
        "score": tuned.score,
        "by_steps": by_steps(tuned),
    }


def by_steps(tuned: TunedSvgd) -> list[float | None]:
    """The tuning score of the chosen bandwidth and rate after each number of steps; None where it diverged.

    Example:
        >>> grid = (((1.0, 0.1, 50), 0.2), ((1.0, 0.1, 20), 0.3), ((2.0, 0.1, 20), 0.4))
        >>> by_steps(TunedSvgd(Svgd(lambda x: -x, 1.0, 0.1, 50), 0.2, grid))
        [0.3, 0.2]
    """
    chosen = (tuned.svgd.bandwidth, tuned.svgd.rate)
    own = sorted((steps, value) for (bandwidth, rate, steps), value in tuned.grid if (bandwidth, rate) == chosen)
    return [value if math.isfinite(value) else None for _, value in own]


def _shown(setting: Data) -> str:
    bandwidth = "the median rule" if setting["bandwidth"] is None else f"bandwidth {setting['bandwidth']:g}"
    return f"{bandwidth}, rate {setting['rate']:g}, {setting['steps']} steps"
