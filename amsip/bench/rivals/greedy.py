"""Greedy sequential Bayesian quadrature: the candidate that lowers the discrepancy most, one at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.base import Rival, Rules, random_rows
from amsip.kernels import Kernel
from amsip.references.base import Embedding
from amsip.references.samples import Samples
from amsip.weights import optimal_weights

CANDIDATES = 1500


def greedy_quadrature(
    pool: Float[Tensor, "n d"], kernel: Kernel, m: int, sets: int, generator: torch.Generator | None = None
) -> Rules:
    """Nodes chosen among 1,500 draws of the pool, with the kernel mean of the whole pool."""
    embedding = Samples(pool).embed(kernel)
    candidates = pool[random_rows(pool.shape[0], min(CANDIDATES, pool.shape[0]), sets, generator)]
    nodes = greedy_nodes(candidates, embedding, m)
    return Rules(nodes, optimal_weights(nodes, embedding))


def greedy_nodes(candidates: Float[Tensor, "r n d"], embedding: Embedding, m: int) -> Float[Tensor, "r m d"]:
    r"""From each set of candidates m nodes, each the best addition under optimal unit-sum weights.

    $$\min_{1^\top w = 1} \mathrm{MMD}^2 - c
      = -\mu^\top K^{-1} \mu + \frac{(1 - 1^\top K^{-1} \mu)^2}{1^\top K^{-1} 1}$$

    The three quadratic forms grow by one term for each node in the Newton basis of the chosen ones, so a step scores
    all candidates of all sets by one column of the kernel.
    """
    r, n = candidates.shape[:2]
    kernel, mean = embedding.kernel, embedding.mean(candidates)
    power = kernel.diagonal(candidates)
    floor = 1e-10 * power.mean(-1, keepdim=True)
    residuals = torch.stack([mean, torch.ones_like(mean)])
    forms = torch.zeros(3, r, 1, dtype=mean.dtype)
    basis = torch.zeros(r, n, m, dtype=mean.dtype)
    chosen = torch.zeros(r, m, dtype=torch.long)
    rows = torch.arange(r)
    for step in range(m):
        usable = power > floor
        scale = torch.where(usable, power, 1.0)
        gains = torch.stack([residuals[0] ** 2, residuals[0] * residuals[1], residuals[1] ** 2]) / scale
        reached = forms + gains
        value = -reached[0] + (1.0 - reached[1]) ** 2 / reached[2]
        best = torch.where(usable, value, torch.inf).argmin(-1)
        chosen[:, step] = best
        forms = reached.gather(-1, best.expand(3, r)[..., None])
        root = scale[rows, best].sqrt()[:, None]
        column = kernel(candidates, candidates[rows, best][:, None])[..., 0]
        column = (column - (basis @ basis[rows, best][..., None])[..., 0]) / root
        basis[..., step] = column
        residuals = residuals - residuals[:, rows, best][..., None] / root * column
        power = (power - column.square()).scatter(-1, best[:, None], 0.0)
    return candidates.gather(1, chosen[..., None].expand(r, m, candidates.shape[-1]))


GREEDY = Rival("greedy sequential BQ", greedy_quadrature)
