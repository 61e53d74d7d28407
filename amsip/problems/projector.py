"""Parallel-beam ray sums over a range of angles, as one sparse matrix."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from amsip import _checks

HALF_DIAGONAL = math.sqrt(2.0)


@dataclass(frozen=True, eq=False)
class RayProjector:
    r"""The integrals of an image on $[-1, 1]^2$ along straight rays.

    $$(A x)_{\theta, s} = \Delta t \sum_t x\big(s\, n_\theta + t\, d_\theta\big), \qquad
      d_\theta = (\cos\theta, \sin\theta), \quad n_\theta = (-\sin\theta, \cos\theta)$$

    Pixel centres lie on an even grid from -1 to 1, rows along y and columns along x; between them the image is
    bilinear, and it falls to nothing within one pixel outside. Readings are ordered by angle, then by detector.

    Arguments:
        size: Pixels a side.
        angles: The number of angles, spread evenly over `[-half_range, half_range]`.
        detectors: The number of offsets s, spread evenly over [-1, 1].
        steps: The number of points t along a ray, from corner to corner.
        half_range: Half of the angular range, in degrees.

    Raises:
        ValueError: A count is below two, or the range is not positive.

    Example:
        >>> projector = RayProjector(size=16, angles=3, detectors=5, steps=32, half_range=45.0)
        >>> readings = projector.project(torch.ones(2, 256, dtype=torch.float64))
        >>> readings.shape, round(readings[0, 7].item())  # the central ray at angle 0 crosses two units
        (torch.Size([2, 15]), 2)
    """

    size: int
    angles: int
    detectors: int
    steps: int
    half_range: float

    def __post_init__(self) -> None:
        for name in ("size", "angles", "detectors", "steps"):
            _checks.at_least(name, getattr(self, name), 2)
        _checks.positive("half_range", self.half_range)

    @property
    def pixels(self) -> int:
        """The length of a flattened image."""
        return self.size**2

    @property
    def readings(self) -> int:
        """The length of a flattened sinogram."""
        return self.angles * self.detectors

    @cached_property
    def centres(self) -> Float[Tensor, "pixels 2"]:
        """The coordinates (x, y) of the pixel centres, in the order of a flattened image."""
        axis = _even(1.0, self.size)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        return torch.stack([x, y], -1).reshape(-1, 2)

    @cached_property
    def rays(self) -> tuple[Float[Tensor, "readings"], Float[Tensor, "readings"]]:
        """Angle in radians and offset of every ray, in the order of the readings."""
        angle, offset = torch.meshgrid(
            torch.deg2rad(_even(self.half_range, self.angles)), _even(1.0, self.detectors), indexing="ij"
        )
        return angle.reshape(-1), offset.reshape(-1)

    @cached_property
    def matrix(self) -> Float[Tensor, "readings pixels"]:
        """A, sparse and coalesced, in float64."""
        along = _even(HALF_DIAGONAL, self.steps)
        angle, offset = (column[:, None] for column in self.rays)
        x = -offset * angle.sin() + along * angle.cos()
        y = offset * angle.cos() + along * angle.sin()
        rays, pixels, values = [], [], []
        for row, down in _neighbours(y, self.size):
            for column, across in _neighbours(x, self.size):
                inside = (row >= 0) & (row < self.size) & (column >= 0) & (column < self.size)
                rays.append(torch.nonzero(inside)[:, 0])
                pixels.append((row * self.size + column)[inside])
                values.append((down * across)[inside] * (along[1] - along[0]))
        places = torch.stack([torch.cat(rays), torch.cat(pixels)])
        shape = (self.readings, self.pixels)
        return torch.sparse_coo_tensor(places, torch.cat(values), shape, check_invariants=True).coalesce()

    @cached_property
    def _transposed(self) -> Tensor:
        return self.matrix.t().coalesce()

    def project(self, images: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q readings"]:
        """A x of flattened images."""
        _checks.same_dim("images", images, self.pixels)
        return _product(self.matrix, images)

    def backproject(self, readings: Float[Tensor, "*q readings"]) -> Float[Tensor, "*q pixels"]:
        """A' y, the adjoint, of flattened sinograms."""
        _checks.same_dim("readings", readings, self.readings)
        return _product(self._transposed, readings)


def _even(half: float, count: int) -> Tensor:
    return torch.linspace(-half, half, count, dtype=torch.float64)


def _neighbours(place: Tensor, size: int) -> list[tuple[Int64[Tensor, "..."], Float[Tensor, "..."]]]:
    """The two grid lines beside each coordinate, and its share of each; lines off the grid included."""
    index = 0.5 * (place + 1.0) * (size - 1)
    line = index.floor()
    share = index - line
    low = line.to(torch.int64)
    return [(low, 1.0 - share), (low + 1, share)]


def _product(matrix: Tensor, rows: Tensor) -> Tensor:
    # laid out by column, for the product is ten times slower on a transposed view
    columns = rows.reshape(-1, rows.shape[-1]).to(matrix).mT.contiguous()
    return torch.sparse.mm(matrix, columns).mT.reshape(*rows.shape[:-1], matrix.shape[0]).to(rows)
