"""Groundwater: the log-permeability of the ground from pressures at a few wells, under eight boundary drives."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.problems.elliptic import pressure
from amsip.problems.karhunen import KarhunenPrior

FIELDS_AT_ONCE = 64


@dataclass(frozen=True)
class Darcy:
    r"""The groundwater problem of the paper: 1024 coefficients, eight drives, 81 wells, 648 readings.

    $$-\nabla \cdot (e^{u} \nabla p) = 0, \qquad p = a s_1 + b s_2 \ \text{on the boundary}, \qquad
      y = \big(p_{(a,b)}(s_w)\big) + 0.003\, \varepsilon$$

    Equation (12) of the paper. Drive k has (a, b) = (cos, sin)(k pi / 8), our choice. The pressure is linear in
    (a, b), so that two solves serve all drives, and eight drives tell no more than two read four times as precisely.

    Arguments:
        prior: The random field.
        grid: Vertices a side of the scheme.
        sensors: Wells a side, at s = 1/10 .. 9/10 for nine.
        drives: How many boundary drives.
        noise: The standard deviation of a reading.

    Raises:
        ValueError: A well is not at a vertex, or a setting is out of range.

    Example:
        >>> problem = Darcy()
        >>> truth = problem.prior.sample(1, generator=torch.Generator().manual_seed(0))
        >>> readings = problem.observe(truth, generator=torch.Generator().manual_seed(1))
        >>> readings.shape, problem.score(truth, readings).shape
        (torch.Size([1, 648]), torch.Size([1, 1024]))
    """

    prior: KarhunenPrior = field(default_factory=KarhunenPrior)
    grid: int = 41
    sensors: int = 9
    drives: int = 8
    noise: float = 0.003

    def __post_init__(self) -> None:
        for name in ("sensors", "drives"):
            _checks.at_least(name, getattr(self, name), 1)
        _checks.at_least("grid", self.grid, 3)
        _checks.positive("noise", self.noise)
        if (self.grid - 1) % (self.sensors + 1):
            raise ValueError(
                f"`grid` must put every well at a vertex: got {self.grid} vertices and {self.sensors} wells a side. "
                "Choose a grid of 1 + c (sensors + 1) vertices."
            )

    @property
    def dim(self) -> int:
        """The number of unknown coefficients."""
        return self.prior.coefficients

    @property
    def readings(self) -> int:
        """The number of readings, drive by drive and then well by well."""
        return self.drives * self.sensors**2

    @cached_property
    def directions(self) -> Float[Tensor, "drives 2"]:
        """(a, b) of each drive."""
        angles = torch.arange(self.drives, dtype=torch.float64) * (math.pi / self.drives)
        return torch.stack([angles.cos(), angles.sin()], -1)

    def permeability(self, coefficients: Float[Tensor, "*q k"]) -> Float[Tensor, "*q n n"]:
        """The log-permeability u at the vertices."""
        return self.prior.field(coefficients, self.grid)

    def unit_readings(self, coefficients: Float[Tensor, "*q k"]) -> Float[Tensor, "*q 2 wells"]:
        """The noise-free pressures at the wells under the drives (1, 0) and (0, 1): all that the readings can tell."""
        stride = (self.grid - 1) // (self.sensors + 1)
        inside = slice(stride, self.grid - 1, stride)
        parts = []
        for part in coefficients.reshape(-1, coefficients.shape[-1]).split(FIELDS_AT_ONCE):
            solved = pressure(self.permeability(part), self._unit_drives.to(part))
            parts.append(solved[..., inside, inside].flatten(-2))
        return torch.cat(parts).reshape(*coefficients.shape[:-1], 2, -1)

    def forward(self, coefficients: Float[Tensor, "*q k"]) -> Float[Tensor, "*q readings"]:
        """The noise-free readings; differentiable, by one adjoint solve a field."""
        return self.mixed(self.unit_readings(coefficients))

    def mixed(self, unit: Float[Tensor, "*q 2 wells"]) -> Float[Tensor, "*q readings"]:
        """The readings of all drives from those of the two unit ones."""
        return (self.directions.to(unit) @ unit).flatten(-2)

    def observe(
        self, coefficients: Float[Tensor, "*q k"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "*q readings"]:
        """Readings with their noise."""
        clean = self.forward(coefficients)
        return clean + self.noise * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)

    def log_likelihood(
        self, coefficients: Float[Tensor, "*q k"], readings: Float[Tensor, "*#q readings"]
    ) -> Float[Tensor, "*q"]:
        """The log density of the readings given the field, up to a constant."""
        return -0.5 * ((readings - self.forward(coefficients)) / self.noise).square().sum(-1)

    def log_posterior(
        self, coefficients: Float[Tensor, "*q k"], readings: Float[Tensor, "*#q readings"]
    ) -> Float[Tensor, "*q"]:
        """The log density of the field given the readings, up to a constant of the readings."""
        return self.log_likelihood(coefficients, readings) - 0.5 * coefficients.square().sum(-1)

    def score(
        self, coefficients: Float[Tensor, "*q k"], readings: Float[Tensor, "*#q readings"]
    ) -> Float[Tensor, "*q k"]:
        """The gradient of `log_posterior` in the coefficients: one factorisation, four solves a field."""
        with torch.enable_grad():
            point = coefficients.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_posterior(point, readings).sum(), point)
        return gradient

    def posterior_score(
        self, readings: Float[Tensor, "readings"]
    ) -> Callable[[Float[Tensor, "*q k"]], Float[Tensor, "*q k"]]:
        """The score of one posterior, as a `Reference` or a score-based map takes it."""
        return lambda coefficients: self.score(coefficients, readings)

    @cached_property
    def _unit_drives(self) -> Tensor:
        s = torch.linspace(0.0, 1.0, self.grid, dtype=torch.float64)
        return torch.stack([s[:, None].expand(-1, self.grid), s[None, :].expand(self.grid, -1)])
