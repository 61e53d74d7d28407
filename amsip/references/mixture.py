"""Gaussian mixtures: everything about them is closed form."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import Kernel
from amsip.references.base import Embedding, Moments, Reference
from amsip.references.embeddings import embed, smoothed_mixture
from amsip.whitening import Whitening


@dataclass(frozen=True, eq=False)
class Mixture(Reference):
    r"""The mixture $\rho = \sum_k \pi_k \mathcal N(m_k, \Sigma_k)$, with its exact embedding and score.

    Arguments:
        shares: The weights of the components, normalised here.
        means: Their means.
        covs: Their covariances, positive definite.

    Example:
        >>> pair = Mixture(torch.ones(2), torch.tensor([[-2.0], [2.0]]), torch.ones(2, 1, 1))
        >>> pair.moments()[1].item()
        5.0
    """

    shares: Float[Tensor, "*q c"]
    means: Float[Tensor, "*q c d"]
    covs: Float[Tensor, "*q c d d"]

    def __post_init__(self) -> None:
        means = _checks.points("means", self.means)
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "shares", _checks.sample_weights("shares", self.shares, means))
        object.__setattr__(self, "covs", _checks.covariance("covs", self.covs, means))

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The number of coordinates d."""
        return self.means.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.means.shape[:-2]

    @cached_property
    def _factors(self) -> Tensor:
        return torch.linalg.cholesky(self.covs)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """A component for each draw first, then the draw."""
        flat = self.shares.reshape(-1, self.shares.shape[-1])
        label = torch.multinomial(flat, n, replacement=True, generator=generator)
        label = label.reshape(*self.batch_shape, n)
        noise = torch.randn(
            *self.batch_shape, n, self.dim, generator=generator, dtype=self.means.dtype, device=self.means.device
        )
        chosen = label[..., None].expand(*label.shape, self.dim)
        spread = torch.einsum("...kij,...nj->...kni", self._factors, noise)
        picked = spread.gather(-3, chosen[..., None, :, :])[..., 0, :, :]
        return self.means.gather(-2, chosen) + picked

    def score(self, x: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n d"]:
        """grad log density."""
        solved, log_mass = self._pulls(x)
        return -(torch.softmax(log_mass, -2)[..., None] * solved).sum(-3)

    def log_prob(self, x: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n"]:
        """The log density."""
        return torch.logsumexp(self._pulls(x)[1], -2)

    def moments(self) -> Moments:
        """Mean and covariance, between components included."""
        weights = self.shares[..., None]
        mean = (weights * self.means).sum(-2)
        gaps = self.means - mean[..., None, :]
        within = (weights[..., None] * self.covs).sum(-3)
        return mean, within + (weights * gaps).mT @ gaps

    def embed(self, kernel: Kernel) -> Embedding:
        """Closed form for squared exponentials, octaves, polynomials and their sums, whitened or not."""
        return embed(self, kernel, lambda k: smoothed_mixture(k, self.moments(), self.shares, self.means, self.covs))

    def whiten(self, whitening: Whitening) -> "Mixture":
        """A mixture again: affine maps act on each component."""
        means = whitening.forward(self.means)
        inverse = whitening.inverse_root.to(self.covs)[..., None, :, :]
        covs = (inverse @ self.covs @ inverse.mT).expand(*means.shape, means.shape[-1])
        return Mixture(self.shares.expand(means.shape[:-1]), means, covs)

    def _pulls(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Per component: Sigma^-1 (x - m), and log(pi N(x; m, Sigma))."""
        solved, log_density = _linalg.normal_pulls(x[..., None, :, :], self.means, self._factors)
        return solved, log_density + self.shares.log()[..., None]
