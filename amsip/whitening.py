"""The affine change of coordinates in which a posterior has zero mean and identity covariance."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _linalg

RELATIVE_FLOOR = 1e-10


@dataclass(frozen=True, eq=False)
class Whitening:
    r"""The chart u = R (x - a) of the posterior-whitened kernel, one per query or one for all.

    $$k_M(x, z) = \exp\big(-\tfrac{1}{2\sigma^2} (x - z)^\top \Sigma^{-1} (x - z)\big) = k(R x, R z),
      \quad R = \Sigma^{-1/2}$$

    Equation (13) of the paper. The symmetric root is used, so that coordinates keep their identity.
    Directions with no spread are given the smallest representable scale and stay where they are.

    Arguments:
        centre: The point a that becomes the origin.
        root: The symmetric square root of the covariance.
        inverse_root: Its inverse R.

    Example:
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 0.1])
        >>> u = Whitening.of_samples(draws).forward(draws)
        >>> torch.allclose(torch.cov(u.T, correction=0), torch.eye(2), atol=1e-4)
        True
    """

    centre: Float[Tensor, "*q d"]
    root: Float[Tensor, "*q d d"]
    inverse_root: Float[Tensor, "*q d d"]

    @classmethod
    def of_moments(cls, mean: Float[Tensor, "*q d"], cov: Float[Tensor, "*q d d"]) -> "Whitening":
        """The chart of a mean and a covariance; coordinates are scaled first, so units do not matter."""
        scale = cov.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
        largest = scale.amax(-1, keepdim=True)
        scale = torch.where(scale > 0, scale, torch.where(largest > 0, largest, torch.ones_like(largest)))
        root, inverse_root = _linalg.symmetric_root(cov / (scale[..., :, None] * scale[..., None, :]), RELATIVE_FLOOR)
        return cls(mean, scale[..., :, None] * root, inverse_root / scale[..., None, :])

    @classmethod
    def of_samples(cls, samples: Float[Tensor, "*q n d"]) -> "Whitening":
        """The chart of the equal-weight moments of a sample."""
        mean = samples.mean(-2)
        centred = samples - mean[..., None, :]
        return cls.of_moments(mean, centred.mT @ centred / samples.shape[-2])

    def forward(self, x: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n d"]:
        """u = R (x - a)."""
        return (x - self.centre[..., None, :]) @ self.inverse_root.mT

    def inverse(self, u: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n d"]:
        """x = a + R^{-1} u."""
        return u @ self.root.mT + self.centre[..., None, :]

    def pull_back(self, gradient: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n d"]:
        """The gradient in x of a function whose gradient in u is given."""
        return gradient @ self.inverse_root

    def push_moments(
        self, mean: Float[Tensor, "*q d"], cov: Float[Tensor, "*q d d"]
    ) -> tuple[Float[Tensor, "*q d"], Float[Tensor, "*q d d"]]:
        """Mean and covariance of u when those of x are given."""
        moved = self.forward(mean[..., None, :])[..., 0, :]
        return moved, self.inverse_root @ cov @ self.inverse_root.mT
