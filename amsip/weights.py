"""The weights of a rule, in closed form from its nodes.

Numerics, stated once: nodes are taken to float64 before their Gram and kernel mean are formed, and every solve runs
there, whatever their dtype; the ridge is `jitter` times the mean diagonal of the Gram; a failed factorisation raises
`NumericalError`; nothing is clamped or retried silently.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import Kernel
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
    gram, mean = gram_and_mean(nodes, embedding)
    constraints, values = _constraints(nodes.to(torch.float64), embedding, total, exact)
    return solve_weights(gram, mean, constraints, values, jitter=jitter).to(nodes)


def mean_shift_weights(
    nodes: Float[Tensor, "*q m d"], embedding: Embedding, *, total: float = 1.0, jitter: float = JITTER
) -> Float[Tensor, "*q m"]:
    r"""The weights of the mean-shift map, rescaled to a given sum.

    $$w \propto K^{-1} v_0$$

    Proposition 3 of the paper: under these weights the fixed points of the map are the stationary points of the
    discrepancy. Before rescaling they are the weights of least discrepancy with a free total.

    Arguments:
        nodes: The nodes z.
        embedding: The reference, as seen by the kernel.
        total: What the weights sum to.
        jitter: The ridge, relative to the mean diagonal of K.

    Returns:
        Signed weights, in the nodes' dtype.

    Raises:
        NumericalError: The weights have no positive sum, or the ridged Gram no Cholesky factor.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> embedding = Samples(torch.tensor([[0.0], [1.0]])).embed(SquaredExponential(1.0))
        >>> mean_shift_weights(torch.tensor([[0.0], [1.0]]), embedding)
        tensor([0.5000, 0.5000])
    """
    gram, mean = gram_and_mean(nodes, embedding)
    free = solve_weights(gram, mean, None, None, jitter=jitter)
    mass = free.sum(-1, keepdim=True)
    _checks.positive_total(mass)
    return (free * (total / mass)).to(nodes)


def simplex_weights(
    nodes: Float[Tensor, "*q m d"], embedding: Embedding, *, total: float = 1.0, jitter: float = JITTER
) -> Float[Tensor, "*q m"]:
    r"""The weights of least discrepancy among those of a probability measure: never negative, of a given sum.

    $$\min_w\ w^\top K w - 2 w^\top \mu \quad \text{subject to} \quad w \ge 0,\ 1^\top w = \text{total}$$

    Equal weights are among them, so they too are never worse than Monte Carlo. Many come out exactly zero.

    Arguments:
        nodes: The nodes z.
        embedding: The reference, as seen by the kernel.
        total: What the weights sum to, positive.
        jitter: The ridge, relative to the mean diagonal of K.

    Returns:
        Non-negative weights, in the nodes' dtype.

    Raises:
        NumericalError: The nodes are too close together for the active set to settle.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> embedding = Samples(torch.tensor([[0.0], [1.0]])).embed(SquaredExponential(1.0))
        >>> simplex_weights(torch.tensor([[0.0], [1.0], [1.5]]), embedding).round(decimals=4)
        tensor([0.5000, 0.5000, 0.0000])
    """
    _checks.positive("total", total)
    gram, mean = gram_and_mean(nodes, embedding)
    # the signed optimum says which nodes are likely to carry weight: a start a few rounds from the end
    signed = unit_sum_weights(gram.detach(), mean.detach(), jitter=jitter).clamp_min(0.0)
    start = total * signed / signed.sum(-1, keepdim=True)
    return _linalg.minimise_on_simplex(_linalg.ridged(gram, jitter), mean, start).clamp_min(0.0).to(nodes)


@dataclass(frozen=True)
class WeightReport:
    """How well conditioned a set of weights is, query by query.

    Arguments:
        ess: The effective sample size, total^2 / sum w^2.
        negative_share: The share of nodes with a negative weight.
        condition: The condition number of the ridged Gram that was solved.
        jitter: The ridge that was used, relative to the mean diagonal of K.

    Example:
        >>> from amsip import SquaredExponential
        >>> weight_report(torch.zeros(1, 1), torch.ones(1), SquaredExponential(1.0)).condition.item()
        1.0
    """

    ess: Float[Tensor, "*q"]
    negative_share: Float[Tensor, "*q"]
    condition: Float[Tensor, "*q"]
    jitter: float


def weight_report(
    nodes: Float[Tensor, "*q m d"], weights: Float[Tensor, "*q m"], kernel: Kernel, *, jitter: float = JITTER
) -> WeightReport:
    """The conditioning of weights at nodes: a small effective size or a large condition number asks for fewer nodes.

    Arguments:
        nodes: The nodes z.
        weights: The weights w.
        kernel: The kernel they were solved under.
        jitter: The ridge they were solved with.

    Example:
        >>> from amsip import SquaredExponential
        >>> report = weight_report(torch.tensor([[0.0], [9.0]]), torch.tensor([1.5, -0.5]), SquaredExponential(1.0))
        >>> report.ess.item(), report.negative_share.item()
        (0.4000000059604645, 0.5)
    """
    _checks.one_weight_per_node(nodes, weights)
    spectrum = torch.linalg.eigvalsh(_linalg.ridged(kernel.gram(nodes.to(torch.float64)), jitter))
    condition = spectrum[..., -1] / spectrum[..., 0].clamp_min(torch.finfo(torch.float64).tiny)
    ess = weights.sum(-1).square() / weights.square().sum(-1)
    return WeightReport(ess, (weights < 0).to(weights).mean(-1), condition.to(weights), jitter)


def solve_weights(
    gram: Float[Tensor, "*q m m"],
    mean: Float[Tensor, "*q m"],
    constraints: Float[Tensor, "*q m c"] | None,
    values: Float[Tensor, "*#q c"] | None,
    *,
    jitter: float = JITTER,
) -> Float[Tensor, "*q m"]:
    """argmin w'(K + eps)w - 2 w'mu under linear constraints C'w = v."""
    _checks.at_least("jitter", jitter, 0.0)
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


def gram_and_mean(
    nodes: Float[Tensor, "*q m d"], embedding: Embedding
) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m"]]:
    """K and mu in float64: rounded to less, their noise would be divided by the smallest eigenvalues of K."""
    _checks.same_dim("nodes", nodes, embedding.dim)
    exact = nodes.to(torch.float64)
    mean = embedding.mean(exact)
    _checks.finite_mean(mean)
    return embedding.kernel.gram(exact), mean


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
    mean, cov = (moment.to(nodes) for moment in embedding.moments)
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
