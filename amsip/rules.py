"""The product: a quadrature rule, nodes with signed weights."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from amsip import _checks
from amsip.discrepancy import mmd2
from amsip.references.base import Embedding

Integrand = Callable[[Float[Tensor, "n d"]], Tensor]

EMISSIONS = ("equal-weight seeds", "reweighted seeds", "moved nodes")


@dataclass(frozen=True, eq=False)
class Rule:
    r"""The quadrature $Q = \sum_j w_j \delta_{z_j}$ of a posterior: $\mathbb E f(X) \approx \sum_j w_j f(z_j)$.

    The weights are signed. A rule is for averages; it is not a sample, so it has no quantiles and is not resampled.

    Arguments:
        nodes: The nodes z, `(..., m, d)`.
        weights: The weights w, `(..., m)`.
        embedding: The reference it integrates, as seen by the kernel, where known.
        emission: Per query, which of `EMISSIONS` the guard kept.

    Example:
        >>> rule = Rule(torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, 0.5]))
        >>> rule.expect(lambda x: x[:, 0] ** 2).item()
        1.0
    """

    nodes: Float[Tensor, "*q m d"]
    weights: Float[Tensor, "*q m"]
    embedding: Embedding | None = field(default=None, repr=False)
    emission: Int64[Tensor, "*q"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _checks.one_weight_per_node(self.nodes, self.weights)

    def expect(self, f: Integrand | Tensor) -> Tensor:
        """The weighted average of f, called once on all nodes as `(n, d)`, or of values already computed.

        Arguments:
            f: A function from `(n, d)` to `(n,)` or `(n, k)`; or its values, `(..., m)` or `(..., m, k)`.

        Returns:
            One number (or k) per query.
        """
        values = self.evaluate(f)
        weights = self.weights.to(values)
        if values.ndim == self.weights.ndim:
            return (weights * values).sum(-1)
        return (weights[..., None] * values).sum(-2)

    def evaluate(self, f: Integrand | Tensor) -> Tensor:
        """The values of f at the nodes, `(..., m)` or `(..., m, k)`."""
        if isinstance(f, Tensor):
            return _checks.values_at_nodes(f, self.weights)
        flat = self.nodes.reshape(-1, self.nodes.shape[-1])
        values = torch.as_tensor(f(flat))
        _checks.values_of_integrand(values, flat)
        return values.reshape(*self.weights.shape, *values.shape[1:])

    def mean(self) -> Float[Tensor, "*q d"]:
        """The mean of the posterior."""
        return (self.weights[..., None] * self.nodes).sum(-2)

    def cov(self) -> Float[Tensor, "*q d d"]:
        """The covariance of the posterior."""
        centred = self.nodes - self.mean()[..., None, :]
        return (self.weights[..., None] * centred).mT @ centred

    @property
    def total(self) -> Float[Tensor, "*q"]:
        """The sum of the weights."""
        return self.weights.sum(-1)

    @property
    def ess(self) -> Float[Tensor, "*q"]:
        """The effective sample size of the weights, total^2 / sum w^2; m for equal weights."""
        return self.total.square() / self.weights.square().sum(-1)

    @property
    def negative_share(self) -> Float[Tensor, "*q"]:
        """The share of nodes with a negative weight."""
        return (self.weights < 0).to(self.weights).mean(-1)

    @cached_property
    def mmd2(self) -> Float[Tensor, "*q"]:
        """The squared discrepancy to the reference this rule was made for; for n atoms it costs n^2 once."""
        if self.embedding is None:
            raise ValueError("This rule does not carry its reference: score it with `mmd2(nodes, weights, embedding)`.")
        return mmd2(self.nodes, self.weights, self.embedding)
