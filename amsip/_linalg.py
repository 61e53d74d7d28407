"""Squared distances, jittered Cholesky solves, equality-constrained quadratics and blocked sums."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from amsip import _checks

BLOCK_ENTRIES = 4_000_000


def squared_distances(x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
    """|x_i - y_j|^2 by one matrix product, both sets centred first so that little is lost to cancellation."""
    centre = y.mean(-2, keepdim=True)
    x, y = x - centre, y - centre
    norms = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    return (norms - 2.0 * (x @ y.mT)).clamp_min(0.0)


def pairwise_squared_distances(x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m m"]:
    """|x_i - x_j|^2 by differences: exact where nodes nearly coincide."""
    return (x[..., :, None, :] - x[..., None, :, :]).square().sum(-1)


def jittered_cholesky(gram: Float[Tensor, "*q m m"], jitter: float) -> Float[Tensor, "*q m m"]:
    """The factor of K + jitter * mean(diag K) * I in float64; raises `NumericalError` when there is none."""
    gram = gram.to(torch.float64)
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    ridged = gram + jitter * scale * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, failures = torch.linalg.cholesky_ex(ridged)
    _checks.factorised(failures, ridged.detach(), jitter)
    return factor


def minimise_quadratic(
    factor: Float[Tensor, "*q m m"],
    linear: Float[Tensor, "*q m"],
    constraints: Float[Tensor, "*q m c"] | None = None,
    values: Float[Tensor, "*q c"] | None = None,
) -> Float[Tensor, "*q m"]:
    """argmin w'Kw - 2 w'b subject to C'w = v, from the Cholesky factor of K."""
    if constraints is None or values is None:
        return torch.cholesky_solve(linear[..., None], factor)[..., 0]
    solved = torch.cholesky_solve(torch.cat([linear[..., None], constraints], -1), factor)
    free, directions = solved[..., 0], solved[..., 1:]
    normal = constraints.mT @ directions
    excess = values - (constraints.mT @ free[..., None])[..., 0]
    return free + (directions @ torch.linalg.solve(normal, excess[..., None]))[..., 0]


def symmetric_root(matrix: Float[Tensor, "*q d d"], floor: float) -> tuple[Tensor, Tensor]:
    """The symmetric square root and its inverse, eigenvalues raised to `floor` times the largest."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(floor * values[..., -1:].clamp_min(torch.finfo(values.dtype).tiny)).sqrt()
    return (vectors * values[..., None, :]) @ vectors.mT, (vectors / values[..., None, :]) @ vectors.mT


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the columns such that no block of a (rows, columns) matrix exceeds `BLOCK_ENTRIES`."""
    width = max(1, BLOCK_ENTRIES // max(1, rows))
    return (slice(start, min(start + width, columns)) for start in range(0, columns, width))


def blocked_sum(term: Callable[[slice], tuple[Tensor, ...]], rows: int, columns: int) -> tuple[Tensor, ...]:
    """Sum of `term(block)` over column blocks; under autograd each block is recomputed instead of stored."""
    slices = list(blocks(rows, columns))
    if len(slices) == 1:
        return term(slices[0])
    total: tuple[Tensor, ...] | None = None
    for block in slices:
        part = checkpoint(term, block, use_reentrant=False) if torch.is_grad_enabled() else term(block)
        total = part if total is None else tuple(a + b for a, b in zip(total, part, strict=True))
    assert total is not None
    return total
