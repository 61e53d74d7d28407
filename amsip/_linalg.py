"""Squared distances, jittered Cholesky solves, constrained quadratics and blocked sums."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from amsip import _checks

# a quarter of a megabyte: it stays in the cache, and the allocator keeps it between blocks instead of giving it back
BLOCK_ENTRIES = 32_768
# a graph of so many entries is kept rather than computed again; and no block is larger
RECORDED_ENTRIES = 262_144
# narrower blocks of many rows cost more than their entries
LEAST_COLUMNS = 32
REDUNDANT = 1e-11


def squared_distances(x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
    """|x_i - y_j|^2 by one matrix product, both sets centred first so that little is lost to cancellation."""
    centre = middle(y)
    x, y = x - centre, y - centre
    ones = torch.ones_like(y[..., :1])
    left = torch.cat([-2.0 * x, x.square().sum(-1, keepdim=True), torch.ones_like(x[..., :1])], -1)
    right = torch.cat([y, ones, y.square().sum(-1, keepdim=True)], -1)
    r2 = left @ right.mT
    if r2.requires_grad:
        # a plain clamp would cut the graph at coinciding points, where second derivatives are still needed
        return r2 - r2.detach().clamp_max(0.0)
    return r2.clamp_min_(0.0)


def middle(y: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q 1 d"]:
    """A point among most of the others, the median of three of them: a mean would follow a single wild one."""
    count = y.shape[-2]
    first, second, third = (y[..., row : row + 1, :].detach() for row in (0, count // 2, count - 1))
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    return torch.maximum(low, torch.minimum(high, third))


def pairwise_squared_distances(x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m m"]:
    """|x_i - x_j|^2 by differences: exact where nodes nearly coincide."""
    r2: Tensor = _PairwiseSquaredDistances.apply(x)
    return r2


class _PairwiseSquaredDistances(torch.autograd.Function):
    """No (m, m, d) tensor of differences is made, forwards or backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square_()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        x = x - x.mean(-2, keepdim=True)
        pulls = 2.0 * (cotangent + cotangent.mT)
        return pulls.sum(-1, keepdim=True) * x - pulls @ x


def accumulate(total: Tensor, term: Tensor, factor: float = 1.0) -> Tensor:
    """total + factor * term, in the memory of `total` when no graph is being recorded."""
    if total.requires_grad or term.requires_grad:
        return torch.add(total, term, alpha=factor)
    return total.add_(term, alpha=factor)


def fourth_power(x: Tensor) -> Tensor:
    """x^4, in the memory of x when no graph is being recorded."""
    return x.square().square() if x.requires_grad else x.square_().square_()


def ridged(gram: Float[Tensor, "*q m m"], jitter: float) -> Float[Tensor, "*q m m"]:
    """K + jitter * mean(diag K) * I in float64."""
    gram = gram.to(torch.float64)
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return gram + jitter * scale * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def jittered_cholesky(gram: Float[Tensor, "*q m m"], jitter: float) -> Float[Tensor, "*q m m"]:
    """The factor of the ridged Gram; raises `NumericalError` when there is none."""
    matrix = ridged(gram, jitter)
    factor, failures = torch.linalg.cholesky_ex(matrix)
    _checks.factorised(failures, matrix.detach(), jitter)
    return factor


def minimise_quadratic(
    factor: Float[Tensor, "*q m m"],
    linear: Float[Tensor, "*q m"],
    constraints: Float[Tensor, "*q m c"] | None = None,
    values: Float[Tensor, "*#q c"] | None = None,
) -> Float[Tensor, "*q m"]:
    """argmin w'Kw - 2 w'b subject to C'w = v, from the Cholesky factor of K; redundant constraints do no harm."""
    if constraints is None or values is None:
        return torch.cholesky_solve(linear[..., None], factor)[..., 0]
    # columns of one size, so that units do not decide which constraints count as redundant
    size = torch.linalg.vector_norm(constraints.detach(), dim=-2)
    size = torch.where(size > 0, size, torch.ones_like(size))
    constraints, values = constraints / size[..., None, :], values / size
    solved = torch.cholesky_solve(torch.cat([linear[..., None], constraints], -1), factor)
    free, directions = solved[..., 0], solved[..., 1:]
    normal = constraints.mT @ directions
    if normal.shape[-1] == 1:
        return free + (directions @ ((values - _applied(constraints, free))[..., None] / normal))[..., 0]
    inverse = torch.linalg.pinv(normal, hermitian=True, rtol=REDUNDANT)
    # the second round removes the rounding of the first, which badly conditioned nodes make visible
    for _ in range(2):
        excess = values - _applied(constraints, free)
        free = free + _applied(directions.mT, _applied(inverse, excess))
    _checks.constraints_met((values - _applied(constraints, free)).detach(), free.detach())
    return free


def minimise_on_simplex(
    gram: Float[Tensor, "*q m m"], linear: Float[Tensor, "*q m"], start: Float[Tensor, "*q m"]
) -> Float[Tensor, "*q m"]:
    """argmin w'Kw - 2 w'b over w >= 0 with the sum of `start`: the primal active-set method, all queries together.

    Each round either reaches the minimiser on the nodes that may carry weight and then admits the node of the most
    negative multiplier, or stops where the first weights vanish and drops their nodes.
    """
    total = start.sum(-1, keepdim=True)
    with torch.no_grad():
        carrying = _active_set(gram, linear, start, total)
    return _minimise_on(carrying, gram, linear, total)


def symmetric_root(matrix: Float[Tensor, "*q d d"], floor: float) -> tuple[Tensor, Tensor]:
    """The symmetric square root and its inverse, eigenvalues raised to `floor` times the largest; I for zero."""
    values, vectors = torch.linalg.eigh(matrix)
    largest = values[..., -1:]
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    lowest = torch.where(values[..., -1:] > 0, floor * largest, largest)
    values = torch.maximum(values, lowest).sqrt()
    return (vectors * values[..., None, :]) @ vectors.mT, (vectors / values[..., None, :]) @ vectors.mT


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the columns such that blocks of a (rows, columns) matrix have `BLOCK_ENTRIES` or few columns."""
    rows = max(1, rows)
    width = max(1, BLOCK_ENTRIES // rows, min(LEAST_COLUMNS, RECORDED_ENTRIES // rows))
    return (slice(start, min(start + width, columns)) for start in range(0, columns, width))


def blocked_sum(
    term: Callable[[slice], tuple[Tensor, ...]], rows: int, columns: int, *, recording: bool
) -> tuple[Tensor, ...]:
    """Sum of `term(block)` over column blocks; when a graph is recorded, blocks are recomputed instead of stored."""
    if recording and rows * columns <= RECORDED_ENTRIES:
        return term(slice(0, columns))
    total: tuple[Tensor, ...] | None = None
    for block in blocks(rows, columns):
        part = checkpoint(term, block, use_reentrant=False, preserve_rng_state=False) if recording else term(block)
        total = part if total is None else tuple(accumulate(a, b) for a, b in zip(total, part, strict=True))
    assert total is not None
    return total


def normal_pulls(
    x: Float[Tensor, "*#q n d"], mean: Float[Tensor, "*#q d"], factor: Float[Tensor, "*#q d d"]
) -> tuple[Float[Tensor, "*q n d"], Float[Tensor, "*q n"]]:
    """Sigma^-1 (x - m) and log N(x; m, Sigma), from the Cholesky factor of Sigma."""
    gaps = x - mean[..., None, :]
    solved = torch.cholesky_solve(gaps.mT, factor).mT
    log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = -log_det - 0.5 * x.shape[-1] * math.log(2.0 * math.pi)
    return solved, constant[..., None] - 0.5 * (gaps * solved).sum(-1)


def _applied(matrix: Tensor, vector: Tensor) -> Tensor:
    """M'v."""
    return (matrix.mT @ vector[..., None])[..., 0]


def _active_set(gram: Tensor, linear: Tensor, start: Tensor, total: Tensor) -> Tensor:
    """Which nodes carry weight at the minimum on the simplex."""
    w, carrying = start, start > 0
    tallest = gram.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    tolerance = 1e-12 * (tallest * total + linear.abs().amax(-1, keepdim=True))
    for _ in range(10 * start.shape[-1] + 10):
        best = _minimise_on(carrying, gram, linear, total)
        blocking = carrying & (best < 0)
        stuck = blocking.any(-1, keepdim=True)
        ratio = torch.where(blocking, w / (w - best), torch.inf)
        nearest = ratio.amin(-1, keepdim=True)
        w = torch.where(carrying, w + nearest.clamp_max(1.0) * (best - w), 0.0)
        slope = _applied(gram, w) - linear
        level = (slope * carrying).sum(-1, keepdim=True) / carrying.sum(-1, keepdim=True)
        gain = torch.where(carrying, torch.inf, slope - level)
        wanting = ~stuck & (gain.amin(-1, keepdim=True) < -tolerance)
        if not bool((stuck | wanting).any()):
            return carrying
        carrying = carrying & ~(stuck & (ratio == nearest)) | wanting & (gain == gain.amin(-1, keepdim=True))
    raise _checks.unsettled_simplex(start.shape[-1])


def _minimise_on(carrying: Tensor, gram: Tensor, linear: Tensor, total: Tensor) -> Tensor:
    """The minimiser of given sum among weights that vanish off the carrying nodes."""
    mask = carrying.to(gram)
    inside = gram * (mask[..., :, None] * mask[..., None, :]) + torch.diag_embed(1.0 - mask)
    factor, failures = torch.linalg.cholesky_ex(inside)
    _checks.factorised(failures, inside.detach(), 0.0)
    return minimise_quadratic(factor, linear * mask, mask[..., None], total) * mask
