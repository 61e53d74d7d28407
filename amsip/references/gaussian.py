"""A single Gaussian: the limit in which the mixture has one component."""

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
class Gaussian(Reference):
    r"""The Gaussian $\mathcal N(m, \Sigma)$, with its exact embedding and score; one, or one per query.

    Arguments:
        mean: The mean m.
        cov: The covariance, positive definite.

    Raises:
        ValueError: The covariance is not symmetric positive definite, or the shapes do not fit.

    Example:
        >>> posterior = Gaussian(torch.zeros(2), torch.diag(torch.tensor([4.0, 1.0])))
        >>> posterior.score(torch.tensor([[2.0, 2.0]]))
        tensor([[-0.5000, -2.0000]])
    """

    mean: Float[Tensor, "*q d"]
    cov: Float[Tensor, "*q d d"]

    def __post_init__(self) -> None:
        mean = _checks.vector("mean", self.mean)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "cov", _checks.covariance("cov", self.cov, mean))

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The number of coordinates d."""
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.mean.shape[:-1]

    @cached_property
    def _factor(self) -> Tensor:
        return torch.linalg.cholesky(self.cov)

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """m + L e, with e standard normal and L the Cholesky factor."""
        shape = (*self.batch_shape, n, self.dim)
        noise = torch.randn(shape, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean[..., None, :] + noise @ self._factor.mT

    def score(self, x: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q n d"]:
        """grad log density, -Sigma^-1 (x - m)."""
        return -_linalg.normal_pulls(x, self.mean, self._factor)[0]

    def log_prob(self, x: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q n"]:
        """The log density."""
        return _linalg.normal_pulls(x, self.mean, self._factor)[1]

    def moments(self) -> Moments:
        """The mean and the covariance it was made of."""
        return self.mean, self.cov

    def embed(self, kernel: Kernel) -> Embedding:
        """Closed form for squared exponentials, octaves, polynomials and their sums, whitened or not."""
        shares, means, covs = torch.ones_like(self.mean[..., :1]), self.mean[..., None, :], self.cov[..., None, :, :]
        return embed(self, kernel, lambda k: smoothed_mixture(k, self.moments(), shares, means, covs))

    def whiten(self, whitening: Whitening) -> "Gaussian":
        """A Gaussian again."""
        mean, cov = whitening.push_moments(self.mean, self.cov)
        return Gaussian(mean, cov)
