"""Principal directions of images whose law does not change when they are mirrored: each is even or odd on each axis."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks

PARITIES = ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))


@dataclass(frozen=True, eq=False)
class Principal:
    """A mean image and the orthonormal directions of largest variance about it.

    Arguments:
        mean: The mean, flattened.
        directions: One a row, flattened, by falling variance.
        variance: Along each.
        signs: What mirroring left-right, and up-down, does to each coefficient: 1 keeps it, -1 changes its sign.
        retained: The share of the variance that lies along the directions.

    Example:
        >>> images = torch.randn(50, 16, generator=torch.Generator().manual_seed(0))
        >>> found = Principal.of(images, 5)
        >>> coefficients = found.coefficients(images)
        >>> torch.allclose(found.coefficients(found.images(coefficients)), coefficients, atol=1e-5)
        True
    """

    mean: Float[Tensor, "pixels"]
    directions: Float[Tensor, "k pixels"]
    variance: Float[Tensor, "k"]
    signs: Float[Tensor, "2 k"]
    retained: Float[Tensor, ""]

    @classmethod
    def of(cls, images: Float[Tensor, "n pixels"], count: int) -> "Principal":
        """From a sample together with all its mirror images, one parity at a time."""
        side = math.isqrt(images.shape[-1])
        _checks.one_of("the remainder of the side of `images` by 2", side % 2, (0,))
        stack = images.unflatten(-1, (side, side))
        mean = unfolded(folded(stack.mean(0), PARITIES[0]), PARITIES[0])
        sectors = [_sector(stack - mean, parity) for parity in PARITIES]
        variance, directions, signs = (torch.cat(parts) for parts in zip(*sectors, strict=True))
        leading = variance.argsort(descending=True)[:count]
        retained = variance[leading].sum() / variance.sum()
        return cls(mean.flatten(), directions[leading], variance[leading], signs[leading].mT.contiguous(), retained)

    @classmethod
    def stored(cls, tensors: Mapping[str, Tensor], prefix: str) -> "Principal":
        """From named tensors, as `tensors` gives them."""
        return cls(**{field.name: tensors[prefix + field.name] for field in fields(cls)})

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """All of it by name.

        Example:
            >>> list(Principal.of(torch.randn(9, 4), 1).tensors("a."))
            ['a.mean', 'a.directions', 'a.variance', 'a.signs', 'a.retained']
        """
        return {prefix + field.name: getattr(self, field.name) for field in fields(self)}

    def coefficients(self, images: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q k"]:
        """Along the directions."""
        return (images - self.mean.to(images)) @ self.directions.to(images).mT

    def images(self, coefficients: Float[Tensor, "*q k"]) -> Float[Tensor, "*q pixels"]:
        """The images with these coefficients and nothing outside the directions."""
        return self.mean.to(coefficients) + coefficients @ self.directions.to(coefficients)


def folded(images: Float[Tensor, "*q n n"], parity: tuple[float, float]) -> Float[Tensor, "*q k k"]:
    """The part of images with a parity, left-right and up-down, as one quadrant of the same norm.

    Example:
        >>> folded(torch.tensor([[1.0, 3.0], [1.0, 3.0]]), (1.0, 1.0)), folded(torch.ones(2, 2), (-1.0, 1.0))
        (tensor([[4.0000]]), tensor([[0.]]))
    """
    for axis, sign in zip((-1, -2), parity, strict=True):
        near, far = images.chunk(2, axis)
        images = (near + sign * far.flip(axis)) * math.sqrt(0.5)
    return images


def unfolded(quadrants: Float[Tensor, "*q k k"], parity: tuple[float, float]) -> Float[Tensor, "*q n n"]:
    """The images of a parity from their quadrants.

    Example:
        >>> unfolded(torch.ones(1, 1), (-1.0, 1.0))
        tensor([[ 0.5000, -0.5000],
                [ 0.5000, -0.5000]])
    """
    for axis, sign in zip((-1, -2), parity, strict=True):
        quadrants = torch.cat([quadrants, sign * quadrants.flip(axis)], axis) * math.sqrt(0.5)
    return quadrants


def _sector(centred: Tensor, parity: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Variances, directions and signs of one parity."""
    parts = folded(centred, parity).flatten(1)
    variance, vectors = torch.linalg.eigh((parts.mT @ parts / len(parts)).to(torch.float64))
    side = centred.shape[-1] // 2
    directions = unfolded(vectors.mT.unflatten(-1, (side, side)), parity).flatten(1)
    return variance.to(centred), directions.to(centred), torch.tensor(parity).to(centred).expand(len(variance), 2)
