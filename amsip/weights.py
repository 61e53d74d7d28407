"""The weights of a rule, in closed form from its nodes.

Numerics, stated once: every Gram solve runs in float64 whatever the nodes' dtype; the ridge is `jitter` times the
mean diagonal of the Gram; a failed factorisation raises `NumericalError`; nothing is clamped or retried silently.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.references.base import Embedding

JITTER = 1e-10


def optimal_weights(
    nodes: Float[Tensor, "*q m d"],
    embedding: Embedding,
    *,
    total: float | None = 1.0,
    exact: int = 0,
    jitter: float = JITTER,
) -> Float[Tensor, "*q m"]:
    r"""The weights of least discrepancy at fixed nodes.

    $$w = (K + \varepsilon I)^{-1} (\mu + \kappa 1), \qquad 1^\top w = \text{total}$$

    Proposition 2 of the paper: never worse than equal weights.

    Arguments:
        nodes: The nodes z.
        embedding: The reference, as seen by the kernel.
        total: What the weights sum to; None leaves the total free.
        exact: Integrate polynomials up to this degree (0, 1 or 2) exactly, as linear constraints.
        jitter: The ridge epsilon, relative to the mean diagonal of K.

    Returns:
        Signed weights, in the nodes' dtype.

    Raises:
        ValueError: There are fewer nodes than constraints.
        NumericalError: The ridged Gram has no Cholesky factor.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
        >>> optimal_weights(draws[:8], Samples(draws).embed(SquaredExponential(0.5))).sum().round(decimals=5)
        tensor(1.)
    """
    gram, mean = embedding.kernel.gram(nodes), embedding.mean(nodes)
    constraints, values = _constraints(nodes, embedding, total, exact)
    return solve_weights(gram, mean, constraints, values, jitter=jitter)


def solve_weights(
    gram: Float[Tensor, "*q m m"],
    mean: Float[Tensor, "*q m"],
    constraints: Float[Tensor, "*q m c"] | None,
    values: Float[Tensor, "*q c"] | None,
    *,
    jitter: float = JITTER,
) -> Float[Tensor, "*q m"]:
    """argmin w'(K + eps)w - 2 w'mu under linear constraints C'w = v."""
    factor = _linalg.jittered_cholesky(gram, jitter)
    if constraints is not None and values is not None:
        constraints, values = constraints.to(torch.float64), values.to(torch.float64)
    return _linalg.minimise_quadratic(factor, mean.to(torch.float64), constraints, values).to(mean)


def unit_sum_weights(
    gram: Float[Tensor, "*q m m"], mean: Float[Tensor, "*q m"], *, jitter: float = JITTER
) -> Float[Tensor, "*q m"]:
    """`solve_weights` under the one constraint that every rule of the paper carries."""
    ones = torch.ones_like(mean)
    return solve_weights(gram, mean, ones[..., None], ones[..., :1], jitter=jitter)


def uniform_weights(nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
    """The weights of Monte Carlo, 1/m each.

    Example:
        >>> uniform_weights(torch.zeros(4, 2))
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return torch.full_like(nodes[..., 0], 1.0 / nodes.shape[-2])


def _constraints(
    nodes: Tensor, embedding: Embedding, total: float | None, exact: int
) -> tuple[Tensor | None, Tensor | None]:
    _checks.one_of("exact", exact, (0, 1, 2))
    if total is None:
        if exact:
            raise ValueError("`exact` needs a fixed `total`: exactness on polynomials includes the constants.")
        return None, None
    mean, cov = embedding.moments
    columns, values = [torch.ones_like(nodes[..., :1])], [torch.ones_like(mean[..., :1])]
    centred = nodes - mean[..., None, :]
    if exact >= 1:
        columns.append(centred)
        values.append(torch.zeros_like(mean))
    if exact == 2:
        rows, cols = torch.triu_indices(embedding.dim, embedding.dim)
        columns.append(centred[..., rows] * centred[..., cols])
        values.append(cov[..., rows, cols])
    stacked, target = torch.cat(columns, -1), torch.cat(values, -1) * total
    if stacked.shape[-1] > nodes.shape[-2]:
        raise ValueError(
            f"`exact={exact}` in dimension {embedding.dim} needs at least {stacked.shape[-1]} nodes: "
            f"got {nodes.shape[-2]}. Use more nodes or a lower degree."
        )
    return stacked, target
