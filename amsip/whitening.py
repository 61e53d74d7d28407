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

    Equation (13) of the paper. Coordinates are first divided by their standard deviations and then decorrelated by
    the symmetric root of the correlations, so that each keeps its identity and units do not matter. A direction with
    no spread beyond rounding keeps a scale far below the others: nodes stay where the samples are.

    Arguments:
        centre: The point a that becomes the origin.
        root: A square root of the covariance, the inverse of R.
        inverse_root: R.

    Example:
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 0.1])
        >>> u = Whitening.of_samples(draws).forward(draws)
        >>> torch.allclose(torch.cov(u.T, correction=0), torch.eye(2), atol=1e-4)
        True
    """

    centre: Float[Tensor, "*q d"]
    root: Float[Tensor, "*q d r"]
    inverse_root: Float[Tensor, "*q r d"]

    @classmethod
    def of_moments(cls, mean: Float[Tensor, "*q d"], cov: Float[Tensor, "*q d d"]) -> "Whitening":
        """The chart of a mean and a covariance, worked out in float64; all of one point, the chart only centres.

        Example:
            >>> chart = Whitening.of_moments(torch.zeros(2), torch.tensor([[4.0, 0.0], [0.0, 0.0]]))
            >>> bool(chart.root[0, 0] == 2.0), bool(0.0 < chart.root[1, 1] < 0.01)
            (True, True)
        """
        rounding = torch.finfo(cov.dtype).eps
        scale = cov.to(torch.float64).diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
        scale = torch.where(scale > 4.0 * rounding * mean.abs(), scale, 0.0)
        largest = scale.amax(-1, keepdim=True)
        largest = torch.where(largest > 0, largest, torch.ones_like(largest))
        spread = scale > 0
        scale = torch.where(spread, scale, largest)
        correlation = cov / (scale[..., :, None] * scale[..., None, :])
        correlation = torch.where(spread[..., :, None] & spread[..., None, :], correlation, 0.0)
        root, inverse_root = _linalg.symmetric_root(correlation, max(RELATIVE_FLOOR, 8.0 * rounding))
        return cls(mean, (scale[..., :, None] * root).to(cov), (inverse_root / scale[..., None, :]).to(cov))

    @classmethod
    def of_samples(cls, samples: Float[Tensor, "*q n d"]) -> "Whitening":
        """The chart of the equal-weight moments of a sample.

        Example:
            >>> Whitening.of_samples(torch.tensor([[-3.0], [3.0]])).inverse_root.item()
            0.3333333432674408
        """
        exact = samples.to(torch.float64)
        mean = exact.mean(-2)
        centred = exact - mean[..., None, :]
        return cls.of_moments(mean.to(samples), (centred.mT @ centred / samples.shape[-2]).to(samples))

    def forward(self, x: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q n r"]:
        """u = R (x - a)."""
        return (x - self.centre.to(x)[..., None, :]) @ self.inverse_root.to(x).mT

    def inverse(self, u: Float[Tensor, "*#q n r"]) -> Float[Tensor, "*q n d"]:
        """x = a + R^{-1} u."""
        return u @ self.root.to(u).mT + self.centre.to(u)[..., None, :]

    def push_gradient(self, gradient: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q n r"]:
        """The gradient in u of a function whose gradient in x is given."""
        return gradient @ self.root.to(gradient)

    def pull_back(self, gradient: Float[Tensor, "*#q n r"]) -> Float[Tensor, "*q n d"]:
        """The gradient in x of a function whose gradient in u is given."""
        return gradient @ self.inverse_root.to(gradient)

    def push_moments(
        self, mean: Float[Tensor, "*#q d"], cov: Float[Tensor, "*#q d d"]
    ) -> tuple[Float[Tensor, "*q r"], Float[Tensor, "*q r r"]]:
        """Mean and covariance of u when those of x are given."""
        moved = self.forward(mean[..., None, :])[..., 0, :]
        root = self.inverse_root.to(cov)
        pushed = root @ cov @ root.mT
        return moved, 0.5 * (pushed + pushed.mT)
