"""Ellipse phantoms: a skull and a random number of overlapping ellipses inside it."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from amsip import _checks

SIZE = 64
SKULL, SKULL_WIDTH, SKULL_HEIGHT, SKULL_TILT = 1.0, (0.62, 0.74), (0.80, 0.92), (-12.0, 12.0)
BRAIN, BRAIN_SHARES = -0.55, (0.92, 0.93)
INSIDE = (5, 15)
VALUE, ACROSS, ALONG, RADIUS, TILT = (-0.45, 0.55), (-0.5, 0.5), (-0.55, 0.55), (0.06, 0.30), (0.0, 180.0)
BRIGHTEST = 1.1
CHUNK = 256


def phantoms(count: int, *, size: int = SIZE, generator: Generator | None = None) -> Float[Tensor, "count size size"]:
    """Images on [-1, 1]^2: a bright skull, a dim brain, and 5 to 15 ellipses that add to it, clipped to [0, 1.1].

    The first axis is y, the second x; pixel centres are `linspace(-1, 1, size)`. The ranges of positions, sizes and
    values were read in the authors' public successor repository; the implementation is independent.

    Arguments:
        count: How many.
        size: Pixels a side.
        generator: The source of randomness.

    Returns:
        The images, in float32.

    Example:
        >>> images = phantoms(3, generator=torch.Generator().manual_seed(0))
        >>> images.shape, images.min().item(), bool(images.max() <= 1.1)
        (torch.Size([3, 64, 64]), 0.0, True)
    """
    _checks.at_least("count", count, 1)
    parts = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    return torch.cat([_drawn(_ellipses(part, generator), size) for part in parts])


def rasterised(ellipses: Float[Tensor, "count e 6"], size: int = SIZE) -> Float[Tensor, "count size size"]:
    """The sum of ellipses, each (value, centre x, centre y, semi-axis, other semi-axis, angle): 1 inside, 0 outside.

    Example:
        >>> disc = torch.tensor([[[2.0, 0.0, 0.0, 0.5, 0.5, 0.0]]])
        >>> rasterised(disc, 5)[0, 2].tolist()
        [0.0, 2.0, 2.0, 2.0, 0.0]
    """
    value, x0, y0, first, second, angle = ellipses.unbind(-1)
    cos, sin = angle.cos(), angle.sin()
    # inside where q(x, y) <= 1, a quadratic whose coefficients in (1, x, y, x x, x y, y y) differ by ellipse alone
    p, r = 1.0 / first.square(), 1.0 / second.square()
    xx, xy, yy = p * cos**2 + r * sin**2, 2.0 * (p - r) * cos * sin, p * sin**2 + r * cos**2
    x, y = -2.0 * xx * x0 - xy * y0, -2.0 * yy * y0 - xy * x0
    one = xx * x0**2 + xy * x0 * y0 + yy * y0**2
    inside = torch.stack([one, x, y, xx, xy, yy], -1) @ _monomials(size).to(ellipses) <= 1.0
    return (value[..., None, :] @ inside.to(value))[..., 0, :].unflatten(-1, (size, size))


def _monomials(size: int) -> Tensor:
    axis = torch.linspace(-1.0, 1.0, size, dtype=torch.float64)
    y, x = (grid.flatten() for grid in torch.meshgrid(axis, axis, indexing="ij"))
    return torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y])


def _drawn(ellipses: Tensor, size: int) -> Tensor:
    return rasterised(ellipses, size).clamp(0.0, BRIGHTEST)


def _ellipses(count: int, generator: Generator | None) -> Tensor:
    """(count, 2 + 15, 6): skull, brain, and the ellipses inside; those beyond a phantom's number have value 0."""

    def uniform(bounds: tuple[float, float], *shape: int) -> Tensor:
        return bounds[0] + (bounds[1] - bounds[0]) * torch.rand(count, *shape, generator=generator)

    most = INSIDE[1]
    tilt, width, height = uniform(SKULL_TILT), uniform(SKULL_WIDTH), uniform(SKULL_HEIGHT)
    zero, one = torch.zeros(count), torch.ones(count)
    skull = torch.stack([SKULL * one, zero, zero, width, height, torch.deg2rad(tilt)], -1)
    brain = skull * torch.tensor([BRAIN / SKULL, 0.0, 0.0, *BRAIN_SHARES, 1.0])
    number = torch.randint(INSIDE[0], most + 1, (count, 1), generator=generator)
    value = torch.where(torch.arange(most) < number, uniform(VALUE, most), 0.0)
    angle = uniform(TILT, most) * (math.pi / 180.0)
    rest = [uniform(bounds, most) for bounds in (ACROSS, ALONG, RADIUS, RADIUS)]
    return torch.cat([skull[:, None], brain[:, None], torch.stack([value, *rest, angle], -1)], 1)
