"""Two checks of the numbers that every figure rests on: the score by another road, and what the ridge does to it."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import MultivariateNormal

from amsip.discrepancy import mmd2
from amsip.paper.base import Data
from amsip.problems.toys import EVALUATION_SEED, Toy
from amsip.references.base import Reference
from amsip.references.gaussian import Gaussian
from amsip.references.mixture import Mixture
from amsip.weights import JITTER, optimal_weights

CHECK_NODES, RIDGE_NODES = 11, 64
# as little as the Gram of the worst target still factors with
LITTLE = 1e-13


def cross_check(toy: Toy) -> float:
    """The relative difference of the squared discrepancy of eleven nodes from one worked out by Gaussian densities."""
    nodes = toy.draws(CHECK_NODES, EVALUATION_SEED)
    embedding = toy.reference().embed(toy.kernel)
    weights = optimal_weights(nodes, embedding)
    other = by_densities(nodes, weights, toy.target, toy.bandwidth)
    return abs(float(mmd2(nodes, weights, embedding)) - other) / other


def by_densities(
    nodes: Float[Tensor, "m d"], weights: Float[Tensor, "m"], target: Reference, bandwidth: float
) -> float:
    r"""The squared discrepancy to a Gaussian or a mixture: the kernel is a Gaussian density, up to a constant.

    $$k(x, z) = (2 \pi \sigma^2)^{d/2}\, \mathcal N(x; z, \sigma^2 I), \qquad
      \mu(z) = (2 \pi \sigma^2)^{d/2} \sum_i p_i\, \mathcal N(z; m_i, S_i + \sigma^2 I)$$

    Arguments:
        nodes: The nodes.
        weights: Theirs.
        target: The measure.
        bandwidth: sigma.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> measure = Gaussian(torch.zeros(1, dtype=torch.float64), torch.eye(1, dtype=torch.float64))
        >>> found = by_densities(torch.zeros(1, 1, dtype=torch.float64), one, measure, 1.0)
        >>> round(found - (1.0 - 2.0 * 2.0**-0.5 + 3.0**-0.5), 12)
        0.0
    """
    shares, means, covs = _components(target)
    noise = bandwidth**2 * torch.eye(nodes.shape[-1], dtype=nodes.dtype)
    constant = 0.5 * nodes.shape[-1] * math.log(2.0 * math.pi * bandwidth**2)

    def height(at: Tensor, mean: Tensor, cov: Tensor) -> Tensor:
        return (constant + MultivariateNormal(mean, cov + noise).log_prob(at)).exp()

    parts = list(zip(shares, means, covs, strict=True))
    gram = torch.exp(
        -(torch.cdist(nodes, nodes, compute_mode="donot_use_mm_for_euclid_dist") ** 2) / (2 * bandwidth**2)
    )
    mean = sum(p * height(nodes, m, s) for p, m, s in parts)
    energy = sum(p * q * height(m, n, s + t) for p, m, s in parts for q, n, t in parts)
    return float(weights @ gram @ weights - 2.0 * weights @ mean + energy)


def ridge_effect(toy: Toy, sets: int) -> Data:
    """What the ridge costs reweighted draws: the score with it over that with hardly any, of the set it moves most."""
    seeds, embedding = toy.seed_sets(RIDGE_NODES, sets), toy.reference().embed(toy.kernel)
    scores = [mmd2(seeds, optimal_weights(seeds, embedding, jitter=ridge), embedding) for ridge in (JITTER, LITTLE)]
    ratios = scores[0] / scores[1]
    return {"ratio": ratios[(ratios - 1.0).abs().argmax()]}


def _components(target: Reference) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(target, Mixture):
        return target.shares, target.means, target.covs
    assert isinstance(target, Gaussian)
    return torch.ones_like(target.mean[:1]), target.mean[None], target.cov[None]
