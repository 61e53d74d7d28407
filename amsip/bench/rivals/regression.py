"""Polynomial control variates: plain draws, with the polynomials whose posterior means are known taken out."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.base import Rival, Rules, random_rows
from amsip.kernels import Kernel

ROWS_PER_COLUMN = 1.5


def control_variates(
    pool: Float[Tensor, "n d"],
    kernel: Kernel,
    m: int,
    sets: int,
    generator: torch.Generator | None = None,
    *,
    degree: int = 1,
) -> Rules:
    r"""The weights of the regression estimate on monomials whose means over the pool are known.

    $$w = \Phi (\Phi^\top \Phi)^{-1} \bar\phi, \qquad
      \Phi_j = \phi(x_j), \quad \bar\phi = \frac1n \sum_\ell \phi(x_\ell)$$

    Least squares of f on the monomials at m draws, read at the monomials' means: the weights do not depend on f.
    """
    nodes = pool[random_rows(pool.shape[0], m, sets, generator)]
    target = monomials(pool, degree).mean(-2).expand(sets, -1)
    solved = torch.linalg.lstsq(monomials(nodes, degree).mT, target[..., None], driver="gelsd")
    return Rules(nodes, solved.solution[..., 0])


def monomials(x: Float[Tensor, "*q n d"], degree: int) -> Float[Tensor, "*q n c"]:
    """One, the coordinates and, for degree 2, their products."""
    columns = [torch.ones_like(x[..., :1]), x]
    if degree == 2:
        rows, cols = torch.triu_indices(x.shape[-1], x.shape[-1])
        columns.append(x[..., rows] * x[..., cols])
    return torch.cat(columns, -1)


def determined(m: int, dim: int, degree: int) -> bool:
    """Whether m draws leave the regression enough freedom to be worth running."""
    columns = 1 + dim + (dim * (dim + 1) // 2 if degree == 2 else 0)
    return m >= ROWS_PER_COLUMN * columns


def _quadratic(pool: Tensor, kernel: Kernel, m: int, sets: int, generator: torch.Generator | None) -> Rules:
    return control_variates(pool, kernel, m, sets, generator, degree=2)


LINEAR_CONTROL = Rival(
    "linear control variates",
    control_variates,
    takes_kernel=False,
    own_weights_only=True,
    sized=lambda m, dim: determined(m, dim, 1),
)
QUADRATIC_CONTROL = Rival(
    "quadratic control variates",
    _quadratic,
    takes_kernel=False,
    own_weights_only=True,
    sized=lambda m, dim: determined(m, dim, 2),
)
