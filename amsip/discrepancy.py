"""The squared maximum mean discrepancy between a rule and its reference, and the witness that attains it."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.references.base import Embedding


def mmd2(nodes: Float[Tensor, "*q m d"], weights: Float[Tensor, "*q m"], embedding: Embedding) -> Float[Tensor, "*q"]:
    r"""The squared worst-case error of a rule over the unit ball of the kernel's space.

    $$\mathrm{MMD}^2 = w^\top K w - 2 w^\top \mu + c$$

    Equation (4) of the paper. Raw: neither clamped nor normalised, so rounding can leave it slightly negative; it is
    worked out in float64 whatever the nodes' dtype, for what remains after the cancellation is small.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0))
        >>> abs(mmd2(atoms, torch.tensor([0.5, 0.5], dtype=torch.float64), embedding).item()) < 1e-15
        True
    """
    _checks.one_weight_per_node(nodes, weights)
    _checks.same_dim("nodes", nodes, embedding.dim)
    exact = nodes.to(torch.float64)
    fitted = loss(embedding.kernel.gram(exact), embedding.mean(exact), weights.to(exact))
    return (fitted + embedding.energy.to(exact)).to(nodes)


def loss(
    gram: Float[Tensor, "*q m m"], mean: Float[Tensor, "*q m"], weights: Float[Tensor, "*q m"]
) -> Float[Tensor, "*q"]:
    """w'Kw - 2 w'mu: the discrepancy without the constant that no rule can change."""
    fitted = (gram @ weights.to(gram)[..., None])[..., 0]
    return (weights * (fitted - 2.0 * mean)).sum(-1)


def witness(
    points: Float[Tensor, "*q n d"],
    nodes: Float[Tensor, "*q m d"],
    weights: Float[Tensor, "*q m"],
    embedding: Embedding,
) -> Float[Tensor, "*q n"]:
    r"""The gap $g(x) = \mu(x) - \sum_j w_j k(x, z_j)$, whose RKHS norm is the discrepancy.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.zeros(1, 1)
        >>> witness(atoms, atoms, torch.ones(1), Samples(atoms).embed(SquaredExponential(1.0))).item()
        0.0
    """
    return embedding.mean(points) - embedding.kernel.weighted_sum(points, nodes, weights)
