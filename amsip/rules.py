"""The product: a quadrature rule, nodes with signed weights."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from amsip import _checks
from amsip.discrepancy import mmd2
from amsip.errors import Estimate, estimate
from amsip.references.base import Embedding

Integrand = Callable[[Float[Tensor, "n d"]], Tensor]

EMISSIONS = ("equal-weight seeds", "reweighted seeds", "moved nodes")


@dataclass(frozen=True, eq=False)
class Rule:
    r"""The quadrature $Q = \sum_j w_j \delta_{z_j}$ of a posterior: $\mathbb E f(X) \approx \sum_j w_j f(z_j)$.

    The weights are signed. A rule is for averages; it is not a sample, so only one with non-negative weights
    has quantiles and can be resampled.

    Arguments:
        nodes: The nodes z, `(..., m, d)`.
        weights: The weights w, `(..., m)`.
        embedding: The reference it integrates, as seen by the kernel, where known.
        emission: Per query, which of `EMISSIONS` the guard kept; where a map was asked for, its nodes then moved by
            the little that makes mean and covariance exact.
        batches: How many independent emissions it pools, their nodes one after the other.

    Raises:
        ValueError: Nodes or weights are not finite, or do not fit each other.

    Example:
        >>> rule = Rule(torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, 0.5]))
        >>> rule.expect(lambda x: x[:, 0] ** 2).item()
        1.0
    """

    nodes: Float[Tensor, "*q m d"]
    weights: Float[Tensor, "*q m"]
    embedding: Embedding | None = field(default=None, repr=False)
    emission: Int64[Tensor, "*q"] | None = field(default=None, repr=False)
    batches: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", _checks.points("nodes", self.nodes))
        object.__setattr__(self, "weights", _checks.floating("weights", self.weights))
        _checks.one_weight_per_node(self.nodes, self.weights)
        _checks.finite_weights(self.weights)

    def __len__(self) -> int:
        return self.weights.shape[-1]

    def __iter__(self) -> Iterator[tuple[Float[Tensor, "d"], Float[Tensor, ""]]]:
        """Pairs of a node and its weight, of a rule for one query."""
        _checks.one_query(self.weights.shape[:-1])
        return zip(self.nodes, self.weights, strict=True)

    def query(self, index: int | tuple[int, ...]) -> "Rule":
        """The rule of one query, without the reference all queries share."""
        emission = None if self.emission is None else self.emission[index]
        return Rule(self.nodes[index], self.weights[index], None, emission, self.batches)

    def to_numpy(self) -> tuple[Shaped[np.ndarray, "*q m d"], Shaped[np.ndarray, "*q m"]]:
        """Nodes and weights as arrays."""
        return self.nodes.detach().cpu().numpy(), self.weights.detach().cpu().numpy()

    def expect(self, f: Integrand | _checks.ArrayLike) -> Tensor:
        """The weighted average of f, called once on all nodes as `(n, d)`, or of values already computed.

        Arguments:
            f: A function from `(n, d)` to `(n,)` or `(n, k)`; or its values, `(..., m)` or `(..., m, k)`.

        Returns:
            One number (or k) per query.
        """
        return _average(self.weights, self.evaluate(f))

    def estimate(self, f: Integrand | _checks.ArrayLike, *, draws: float | None = None) -> Estimate:
        """The weighted average of f with a calibrated error, at no cost beyond the m evaluations.

        Arguments:
            f: As for `expect`.
            draws: How many independent draws the reference is worth, where its own count is wrong: for a Markov
                chain, its effective sample size.

        Returns:
            Value, standard error and how many independent draws would err as little; see `Estimate`.

        Raises:
            ValueError: The rule does not carry its reference.

        Example:
            >>> from amsip import quadrature
            >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            >>> found = quadrature(x, 32, generator=torch.Generator()).estimate(lambda x: torch.cos(x[:, 0]))
            >>> bool((found.value - torch.cos(x[:, 0]).mean()).abs() < 5 * found.quadrature_error)
            True
        """
        if self.embedding is None:
            raise ValueError(
                "This rule does not carry its reference (one that was loaded, pooled or taken from a batch does not): "
                "use `expect` or `pooled_expect`, or make it with `quadrature`."
            )
        return estimate(self.nodes, self.weights, self.evaluate(f), self.embedding, draws)

    def pooled_expect(self, f: Integrand | _checks.ArrayLike) -> "Estimate":
        r"""The average over independent emissions, and its standard error from their spread.

        $$\bar Q[f] = \tfrac1K \sum_k Q_k[f]$$

        Remark 3 of the paper: the error of a single emission is the same in the mean and K times larger in variance.
        The standard error knows the noise of the seeds, not the bias that all emissions share.

        Arguments:
            f: As in `expect`.

        Raises:
            ValueError: The rule pools fewer than two emissions.
        """
        _checks.pooled(self.batches)
        values = self.evaluate(f)
        shape = (*self.weights.shape[:-1], self.batches, -1)
        extra = values.shape[self.weights.ndim :]
        parts = _average(self.batches * self.weights.reshape(shape), values.reshape(*shape, *extra))
        axis = self.weights.ndim - 1
        return Estimate(parts.mean(axis), parts.std(axis) / self.batches**0.5)

    def pool(self) -> "Rule":
        """One rule of the emissions along the first query axis, each with the same share."""
        count, *queries, m, dim = self.nodes.shape
        nodes, weights = self.nodes.movedim(0, -3), self.weights.movedim(0, -2)
        shared = self.embedding is not None and self.embedding.moments[0].ndim <= len(queries) + 1
        return Rule(
            nodes.reshape(*queries, count * m, dim),
            weights.reshape(*queries, count * m) / count,
            self.embedding if shared else None,
            batches=count * self.batches,
        )

    def quantile(
        self, levels: float | Sequence[float] | Tensor, f: Integrand | _checks.ArrayLike | None = None
    ) -> Tensor:
        """Quantiles of every coordinate, or of f: the smallest value that enough of the weight does not exceed.

        Arguments:
            levels: Probabilities between 0 and 1.
            f: A function to scalars, as in `expect`; the coordinates when not given.

        Returns:
            One number per query for each level, and per coordinate: `(..., levels, d)`, or `(..., levels)` for f.

        Raises:
            ValueError: A weight is negative.
        """
        _checks.non_negative_weights(self.weights, "to have quantiles")
        at = torch.as_tensor(levels, dtype=self.weights.dtype)
        _checks.probabilities(at)
        values = self.nodes if f is None else self.evaluate(f).reshape(*self.weights.shape, -1)
        ordered, order = values.sort(dim=-2)
        mass = self.weights[..., None].expand_as(values).gather(-2, order).cumsum(-2)
        # a level that a running sum misses by rounding alone counts as reached
        goal = at.reshape(-1) * mass[..., -1:, :].mT * (1.0 - 8.0 * torch.finfo(mass.dtype).eps)
        index = torch.searchsorted(mass.mT.contiguous(), goal.contiguous()).clamp_max(len(self) - 1)
        picked = ordered.mT.gather(-1, index).mT
        picked = picked if at.ndim else picked[..., 0, :]
        return picked if f is None else picked[..., 0]

    def resample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """Draws of the nodes by weight, for code that wants a sample.

        Arguments:
            n: How many.
            generator: The source of randomness.

        Raises:
            ValueError: A weight is negative.
        """
        _checks.non_negative_weights(self.weights, "to be resampled")
        flat = self.weights.reshape(-1, len(self))
        index = torch.multinomial(flat, n, replacement=True, generator=generator)
        index = index.reshape(*self.weights.shape[:-1], n, 1)
        return self.nodes.gather(-2, index.expand(*index.shape[:-1], self.nodes.shape[-1]))

    def evaluate(self, f: Integrand | _checks.ArrayLike) -> Tensor:
        """The values of f at the nodes, `(..., m)` or `(..., m, k)`."""
        if not callable(f):
            return _checks.values_at_nodes(_checks.values("f", f), self.weights)
        # a copy: models that work in place must not move the nodes
        flat = self.nodes.reshape(-1, self.nodes.shape[-1]).clone()
        values = _checks.values("f", f(flat))
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


def pool(rules: Sequence[Rule]) -> Rule:
    r"""The mixture $\bar Q = \tfrac1K \sum_k Q_k$ of K emissions from independent seeds.

    Remark 3 of the paper: never worse than the average emission, and K times less noisy; its `pooled_expect` states
    the error that is left.

    Arguments:
        rules: Rules of one shape, for the same queries.

    Returns:
        A rule of K m nodes, of the average total.

    Raises:
        ValueError: There is no rule, or they differ in shape.

    Example:
        >>> left, right = (Rule(torch.tensor([[x]]), torch.ones(1)) for x in (-1.0, 1.0))
        >>> both = pool([left, right])
        >>> both.mean().item(), both.pooled_expect(lambda x: x[:, 0]).standard_error.item()
        (0.0, 1.0)
    """
    _checks.poolable([rule.nodes for rule in rules])
    first = rules[0]
    shared = first.embedding if all(rule.embedding is first.embedding for rule in rules) else None
    stacked = Rule(torch.stack([rule.nodes for rule in rules]), torch.stack([rule.weights for rule in rules]), shared)
    return dataclasses.replace(stacked.pool(), batches=sum(rule.batches for rule in rules))


def _average(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over nodes of `(..., m)` or `(..., m, k)` values."""
    weights = weights.to(values) if values.is_floating_point() else weights
    if values.ndim == weights.ndim:
        return (weights * values).sum(-1)
    return (weights[..., None] * values).sum(-2)
