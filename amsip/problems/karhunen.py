"""A Gaussian random field on the unit square, as a sum of cosine modes with independent coefficients."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from amsip import _checks


@dataclass(frozen=True)
class KarhunenPrior:
    r"""The prior of the groundwater problem: a Matern-type spectrum on the Neumann cosines of the unit square.

    $$u(s) = \sum_{ij} \sqrt{\lambda_{ij}}\, \xi_{ij}\, c_i c_j \cos(i \pi s_1) \cos(j \pi s_2), \qquad
      \lambda_{ij} \propto (\ell^{-2} + \pi^2 (i^2 + j^2))^{-2}, \quad \xi \sim \mathcal N(0, I)$$

    with $c_0 = 1$ and $c_i = \sqrt 2$. The modes are those of the smallest $i^2 + j^2$ without (0, 0), for a constant
    in u leaves the pressure unchanged; the spectrum is scaled to the mean pointwise variance. The paper gives the
    number of coefficients, the correlation length and the pointwise deviation; the family is our choice.

    Arguments:
        coefficients: How many modes are kept, in the order of falling variance.
        length: The correlation length l.
        deviation: The root of the mean pointwise variance.

    Example:
        >>> prior = KarhunenPrior()
        >>> prior.modes[:3].tolist(), round(prior.variances.sum().item(), 6)
        ([[0, 1], [1, 0], [1, 1]], 0.5625)
        >>> prior.field(torch.zeros(5, 1024), grid=11).shape
        torch.Size([5, 11, 11])
    """

    coefficients: int = 1024
    length: float = 0.26
    deviation: float = 0.75

    def __post_init__(self) -> None:
        _checks.at_least("coefficients", self.coefficients, 1)
        _checks.positive("length", self.length)
        _checks.positive("deviation", self.deviation)

    @cached_property
    def modes(self) -> Int64[Tensor, "k 2"]:
        """The wave numbers (i, j) of each coefficient."""
        # a square of side a holds the k smallest once a quarter disc of radius a has more than k points
        side = 2 + math.ceil(math.sqrt(4.0 * (self.coefficients + 1) / math.pi))
        pairs = torch.cartesian_prod(torch.arange(side), torch.arange(side))
        order = pairs.square().sum(-1).argsort(stable=True)
        return pairs[order[1 : self.coefficients + 1]]

    @cached_property
    def variances(self) -> Float[Tensor, "k"]:
        """The variance of each mode's coefficient in u, falling."""
        waves = self.modes.square().sum(-1).to(torch.float64)
        spectrum = (self.length**-2 + math.pi**2 * waves) ** -2
        return self.deviation**2 * spectrum / spectrum.sum()

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "n k"]:
        """Independent coefficient vectors, standard normal."""
        return torch.randn(n, self.coefficients, generator=generator, dtype=torch.float64)

    def field(self, coefficients: Float[Tensor, "*q k"], grid: int) -> Float[Tensor, "*q grid grid"]:
        """The log-permeability at the grid x grid vertices of the square, s1 down the rows.

        Arguments:
            coefficients: The standardised coefficients xi; leading ones alone give the field without the others.
            grid: Vertices a side.
        """
        count = coefficients.shape[-1]
        _checks.one_of("the number of coefficients", count <= self.coefficients, (True,))
        amplitudes = coefficients * self.variances[:count].sqrt().to(coefficients)
        rows, columns = self.modes[:count].T
        side = int(self.modes[:count].max()) + 1
        spectrum = amplitudes.new_zeros(*amplitudes.shape[:-1], side * side)
        spectrum = spectrum.index_add(-1, rows * side + columns, amplitudes).unflatten(-1, (side, side))
        cosines = _cosines(side, grid).to(coefficients)
        return cosines @ spectrum @ cosines.mT

    def pointwise_variance(self, grid: int) -> Float[Tensor, "grid grid"]:
        """The variance of u at each vertex."""
        squares = _cosines(int(self.modes.max()) + 1, grid).square()
        rows, columns = self.modes.T
        return (squares[:, rows] * self.variances) @ squares[:, columns].mT


def _cosines(side: int, grid: int) -> Tensor:
    """c_i cos(i pi s) at the vertices, one column a wave number."""
    points = torch.linspace(0.0, 1.0, grid, dtype=torch.float64)
    values = torch.cos(math.pi * points[:, None] * torch.arange(side, dtype=torch.float64))
    values[:, 1:] *= math.sqrt(2.0)
    return values
