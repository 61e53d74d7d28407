"""The steady flow equation on the unit square: a conservative scheme, a direct solver, its adjoint."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks


def pressure(
    log_permeability: Float[Tensor, "*q n n"],
    boundary: Float[Tensor, "r n n"],
    source: Float[Tensor, "*#q #r n n"] | None = None,
) -> Float[Tensor, "*q r n n"]:
    r"""The pressures of several boundary data in one field, by one factorisation a field.

    $$-\nabla \cdot (e^{u} \nabla p) = f \ \text{in}\ (0, 1)^2, \qquad p = g \ \text{on the boundary}$$

    Equation (12) of the paper on a vertex grid: five points, the permeability of a face is the arithmetic mean of e^u
    at its ends, and what flows out of a cell flows into its neighbour. The error falls with the square of the step.
    Differentiable once in `log_permeability`, by one adjoint solve with the same factors.

    Arguments:
        log_permeability: u at the vertices, s1 down the rows.
        boundary: g, read on the boundary of the grid only.
        source: f at the vertices, read in the interior; none when not given.

    Returns:
        p at the vertices, one a boundary datum.

    Raises:
        ValueError: The grid has no interior, or the shapes differ.

    Example:
        >>> s = torch.linspace(0, 1, 6, dtype=torch.float64)
        >>> p = pressure(torch.zeros(6, 6, dtype=torch.float64), s[None, :, None].expand(1, 6, 6))
        >>> p[0, :, 3]
        tensor([0.0000, 0.2000, 0.4000, 0.6000, 0.8000, 1.0000], dtype=torch.float64)
    """
    n = log_permeability.shape[-1]
    _checks.at_least("the number of vertices a side", n, 3)
    _checks.ends_with("boundary", boundary, (n, n))
    queries = log_permeability.shape[:-2]
    fields = log_permeability.reshape(-1, n, n)
    given = boundary.new_zeros(n, n) if source is None else source
    given = given.expand(*queries, len(boundary), n, n).reshape(-1, len(boundary), n, n)
    solved: Tensor = _Pressure.apply(fields, boundary.to(fields), given.to(fields))
    return solved.reshape(*queries, *solved.shape[1:])


@dataclass(frozen=True, eq=False)
class Faces:
    """The permeabilities between neighbouring vertices, down the rows and along them.

    Example:
        >>> Faces.between(torch.ones(2, 4, 4)).down.shape
        torch.Size([2, 3, 4])
    """

    down: Float[Tensor, "q _ n"]
    along: Float[Tensor, "q n _"]

    @classmethod
    def between(cls, permeability: Float[Tensor, "q n n"]) -> "Faces":
        """Arithmetic means of the two ends."""
        return cls(
            0.5 * (permeability[:, 1:] + permeability[:, :-1]),
            0.5 * (permeability[:, :, 1:] + permeability[:, :, :-1]),
        )

    def outflow(self, p: Float[Tensor, "q r n n"]) -> Float[Tensor, "q r i i"]:
        """What leaves each interior vertex through its four faces."""
        down = self.down[:, None] * p.diff(dim=-2)
        along = self.along[:, None] * p.diff(dim=-1)
        return -down.diff(dim=-2)[..., :, 1:-1] - along.diff(dim=-1)[..., 1:-1, :]


@dataclass(frozen=True, eq=False)
class BlockCholesky:
    r"""The scheme's matrix, eliminated row of vertices by row of vertices, many fields at once.

    The matrix is block tridiagonal: with D_k the block of row k and E_k the diagonal coupling of rows k and k + 1,

    $$S_1 = D_1, \qquad S_{k+1} = D_{k+1} - E_k S_k^{-1} E_k$$

    Arguments:
        inverses: The inverses of the S_k, row by row.
        couplings: The diagonals of the -E_k.

    Example:
        >>> factors = BlockCholesky.of(Faces.between(torch.ones(1, 4, 4, dtype=torch.float64)))
        >>> factors.solve(torch.ones(1, 1, 2, 2, dtype=torch.float64)).flatten()
        tensor([0.5000, 0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """

    inverses: tuple[Float[Tensor, "q i i"], ...]
    couplings: Float[Tensor, "q _ i"]

    @classmethod
    def of(cls, faces: Faces) -> "BlockCholesky":
        """Eliminates; 39 small Cholesky factors a field on the paper's grid."""
        down, along = faces.down[:, :, 1:-1], faces.along[:, 1:-1, :]
        diagonal = down[:, 1:] + down[:, :-1] + along[:, :, 1:] + along[:, :, :-1]
        blocks = torch.diag_embed(diagonal)
        for offset in (-1, 1):
            blocks = blocks - torch.diag_embed(along[:, :, 1:-1], offset)
        couplings = down[:, 1:-1]
        inverses = [_inverse(blocks[:, 0])]
        for k in range(1, blocks.shape[1]):
            e = couplings[:, k - 1]
            inverses.append(_inverse(blocks[:, k] - e[:, :, None] * inverses[-1] * e[:, None, :]))
        return cls(tuple(inverses), couplings)

    def solve(self, right: Float[Tensor, "q r i i"]) -> Float[Tensor, "q r i i"]:
        """The interior pressures of several right-hand sides."""
        rows = list(right.permute(0, 2, 3, 1).unbind(1))
        e = self.couplings[..., None]
        for k in range(1, len(rows)):
            rows[k] = rows[k] + e[:, k - 1] * (self.inverses[k - 1] @ rows[k - 1])
        solved = [self.inverses[-1] @ rows[-1]]
        for k in reversed(range(len(rows) - 1)):
            solved.append(self.inverses[k] @ (rows[k] + e[:, k] * solved[-1]))
        return torch.stack(solved[::-1], 1).permute(0, 3, 1, 2)


class _Pressure(torch.autograd.Function):
    """The solve, and backwards the solve with the same factors: d p = -A^(-1) (dA) p, and A is symmetric."""

    @staticmethod
    def forward(ctx: Any, log_permeability: Tensor, boundary: Tensor, source: Tensor) -> Tensor:
        permeability = log_permeability.exp()
        faces = Faces.between(permeability)
        factors = BlockCholesky.of(faces)
        held = boundary.clone()
        held[:, 1:-1, 1:-1] = 0.0
        held = held.expand(len(permeability), *held.shape)
        step = 1.0 / (boundary.shape[-1] - 1)
        inside = factors.solve(step**2 * source[..., 1:-1, 1:-1] - faces.outflow(held))
        solved = held + torch.nn.functional.pad(inside, (1, 1, 1, 1))
        if log_permeability.requires_grad:
            ctx.save_for_backward(permeability, solved)
            ctx.factors = factors
        return solved

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None]:
        permeability, solved = ctx.saved_tensors
        adjoint = torch.nn.functional.pad(ctx.factors.solve(cotangent[..., 1:-1, 1:-1]), (1, 1, 1, 1))
        down = -0.5 * (adjoint.diff(dim=-2) * solved.diff(dim=-2)).sum(1)
        along = -0.5 * (adjoint.diff(dim=-1) * solved.diff(dim=-1)).sum(1)
        pad = torch.nn.functional.pad
        to_vertices = pad(down, (0, 0, 1, 0)) + pad(down, (0, 0, 0, 1)) + pad(along, (1, 0)) + pad(along, (0, 1))
        return permeability * to_vertices, None, None


def _inverse(blocks: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(blocks))
