"""The five modes in the plane: which of them a set of draws misses, and which maps send a node there."""

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from amsip.defaults import universal_map
from amsip.discrepancy import mmd2
from amsip.kernels import SquaredExponential
from amsip.maps.base import NodeMap
from amsip.maps.meanshift import MeanShift
from amsip.maps.optimum import AdamDescent
from amsip.paper import arms
from amsip.paper.arms import DESCENT, FINETUNED, UNIVERSAL
from amsip.paper.base import Data
from amsip.problems.toys import BASE_SEED, Toy, five_modes
from amsip.references.base import Embedding
from amsip.references.mixture import Mixture
from amsip.weights import optimal_weights

M, SCANNED, SCAN_SEED = 16, 60, BASE_SEED + 90_000
NEAR = 2.5
SHIFT = "mean-shift"
MAPS: Mapping[str, NodeMap] = {
    FINETUNED: AdamDescent(steps=300, rate=0.05),
    SHIFT: MeanShift(steps=60, damping=0.5, bounds=(-100.0, 100.0)),
    UNIVERSAL: universal_map,
    DESCENT: arms.descend,
}
# four times the bandwidth of the figure is the plain median of distances
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
GAP_POINTS, GAP_SEED, GAP_REACH = 4000, BASE_SEED, 4.0
TAILS = (0.05, 0.5, 0.95)
ORDER_ONE = 0.1
Z95 = 1.96


@lru_cache(maxsize=1)
def modes_toy() -> Toy:
    """The mixture, with its bandwidth worked out once."""
    return five_modes()


def mode_means() -> Float[Tensor, "modes 2"]:
    """Where the modes are.

    Example:
        >>> mode_means().shape
        torch.Size([5, 2])
    """
    target = modes_toy().reference()
    assert isinstance(target, Mixture)
    return target.means


def modes_embedding(factor: float = 1.0) -> Embedding:
    """The exact embedding, at the bandwidth of the figure times a factor."""
    return modes_toy().reference().embed(SquaredExponential(factor * modes_toy().bandwidth))


def scanned_seeds(count: int) -> Float[Tensor, "sets m 2"]:
    """Sets of draws, the first 60 of which the figure is chosen from."""
    return torch.stack([modes_toy().draws(M, SCAN_SEED + k) for k in range(count)])


def counts_near(nodes: Float[Tensor, "*q m 2"]) -> Int[Tensor, "*q modes"]:
    """How many nodes are within 2.5 of each mode's mean.

    Example:
        >>> counts_near(mode_means()[:2]).tolist()
        [1, 1, 0, 0, 0]
    """
    gaps = nodes[..., :, None, :] - mode_means()
    return (gaps.norm(dim=-1) < NEAR).sum(-2)


def fill_rates(starved: Float[Tensor, "sets m 2"], first: int, factor: float) -> list[Data]:
    """A row for each map: how many of the modes that draws missed have a node after it.

    Arguments:
        starved: Sets that miss a mode or more.
        first: How many of them are among the 60 that the figure is chosen from.
        factor: Of the bandwidth.

    Returns:
        `missed` and `filled` modes, over all sets and over the first; the median weight of the rule near a missed
        mode, whose share is 1/5; the median score over that of the reweighted draws.
    """
    embedding, missed = modes_embedding(factor), counts_near(starved) == 0
    base = mmd2(starved, optimal_weights(starved, embedding), embedding)
    rows = []
    for arm, node_map in MAPS.items():
        nodes = arms.moved(node_map, starved, embedding)
        weights = optimal_weights(nodes, embedding)
        filled = missed & (counts_near(nodes) > 0)
        mass = ((nodes[..., :, None, :] - mode_means()).norm(dim=-1) < NEAR).to(weights) * weights[..., None]
        rows.append(
            {
                "factor": factor,
                "arm": arm,
                "missed": int(missed.sum()),
                "filled": int(filled.sum()),
                "first_missed": int(missed[:first].sum()),
                "first_filled": int(filled[:first].sum()),
                "mass": arms.middle(mass.sum(-2)[missed]),
                "ratio": arms.middle(mmd2(nodes, weights, embedding)) / arms.middle(base),
            }
        )
    return rows


def steps_in_the_gaps(factor: float) -> Data:
    r"""One mean-shift step of a lone node in a gap, with the division by v_0 and without it.

    $$\frac{V_1}{v_0} - z = h^2 \frac{\nabla v_0}{v_0}, \qquad V_1 - v_0 z = h^2\, \nabla v_0$$

    Points lie between two modes, no closer than 4 to any; lengths are relative to the distance to the nearest mode.

    Arguments:
        factor: Of the bandwidth.
    """
    points, nearest = gap_points()
    mean, grad = modes_embedding(factor).mean_and_grad(points)
    plain = (factor * modes_toy().bandwidth) ** 2 * grad.norm(dim=-1) / nearest
    divided = plain / mean
    tails = torch.tensor(TAILS, dtype=plain.dtype)
    return {
        "factor": factor,
        "density": arms.middle(mean),
        "divided": divided.quantile(tails),
        "plain": plain.quantile(tails),
        "divided_share": (divided >= ORDER_ONE).double().mean(),
        "plain_share": (plain >= ORDER_ONE).double().mean(),
    }


def gap_points() -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n"]]:
    """Points on the segments between modes, away from all, and their distance to the nearest.

    Example:
        >>> bool(gap_points()[1].min() > GAP_REACH)
        True
    """
    generator = torch.Generator().manual_seed(GAP_SEED)
    means = mode_means()
    one = torch.randint(len(means), (GAP_POINTS,), generator=generator)
    other = (one + torch.randint(1, len(means), (GAP_POINTS,), generator=generator)) % len(means)
    share = 0.25 + 0.5 * torch.rand(GAP_POINTS, 1, generator=generator, dtype=torch.float64)
    points = share * means[one] + (1.0 - share) * means[other]
    nearest = (points[:, None, :] - means).norm(dim=-1).amin(-1)
    return points[nearest > GAP_REACH], nearest[nearest > GAP_REACH]


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """A 95% interval for a rate.

    Example:
        >>> [round(value, 3) for value in wilson(5, 10)]
        [0.237, 0.763]
    """
    rate, extra = successes / trials, Z95**2 / trials
    half = Z95 * math.sqrt(rate * (1.0 - rate) / trials + extra / (4.0 * trials))
    centre = rate + extra / 2.0
    return (centre - half) / (1.0 + extra), (centre + half) / (1.0 + extra)
