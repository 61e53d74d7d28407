"""A linear forward model with Gaussian prior and noise: the inverse problem that is solved exactly."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.references.gaussian import Gaussian
from amsip.subspace import Subspace, leading_subspace, score_information


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    r"""Parameters seen through a matrix and noise, both Gaussian.

    $$x \sim \mathcal N(m, S), \qquad y = A x + \varepsilon, \quad \varepsilon \sim \mathcal N(0, R)$$

    The posterior is Gaussian; its covariance does not depend on y.

    Arguments:
        prior: N(m, S), one query.
        matrix: A.
        noise: The variances of the readings, the diagonal of R.

    Raises:
        ValueError: A variance is not positive, or the shapes do not fit.

    Example:
        >>> problem = LinearGaussian(Gaussian(torch.zeros(2), torch.eye(2)), torch.eye(2), torch.tensor([1.0, 3.0]))
        >>> posterior = problem.posterior(torch.tensor([2.0, 2.0]))
        >>> posterior.mean, posterior.cov.diagonal()
        (tensor([1.0000, 0.5000]), tensor([0.5000, 0.7500]))
    """

    prior: Gaussian
    matrix: Float[Tensor, "k d"]
    noise: Float[Tensor, "k"]

    def __post_init__(self) -> None:
        _checks.same_dim("matrix", self.matrix, self.prior.dim)
        _checks.same_dim("noise", self.noise, self.matrix.shape[0])
        _checks.positive("noise", self.noise)

    @property
    def dim(self) -> int:
        """The number of parameters d."""
        return self.prior.dim

    def forward(self, x: Float[Tensor, "*q d"]) -> Float[Tensor, "*q k"]:
        """The noise-free readings A x."""
        return x @ self.matrix.mT

    def simulate(
        self, n: int, *, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n k"]]:
        """Joint draws: parameters from the prior, and their noisy readings."""
        x = self.prior.sample(n, generator=generator)
        clean = self.forward(x)
        noise = torch.randn(clean.shape, generator=generator, dtype=clean.dtype, device=clean.device)
        return x, clean + self.noise.sqrt() * noise

    def log_likelihood(self, x: Float[Tensor, "*#q n d"], observation: Float[Tensor, "*q k"]) -> Float[Tensor, "*q n"]:
        """log p(y | x), normalised."""
        square = (self._residual(x, observation).square() / self.noise).sum(-1)
        return -0.5 * (square + (2.0 * math.pi * self.noise).log().sum())

    def likelihood_score(
        self, x: Float[Tensor, "*#q n d"], observation: Float[Tensor, "*q k"]
    ) -> Float[Tensor, "*q n d"]:
        r"""The gradient in x of the log likelihood, $A^\top R^{-1} (y - A x)$."""
        return self._pulled(self._residual(x, observation))

    def score(self, x: Float[Tensor, "*#q n d"], observation: Float[Tensor, "*q k"]) -> Float[Tensor, "*q n d"]:
        """The gradient in x of the log posterior density, from the likelihood and the prior."""
        return self.likelihood_score(x, observation) + self.prior.score(x)

    @cached_property
    def posterior_cov(self) -> Float[Tensor, "d d"]:
        r"""$(S^{-1} + A^\top R^{-1} A)^{-1}$, the same for every observation."""
        prior_precision = torch.cholesky_inverse(torch.linalg.cholesky(self.prior.cov))
        information = self.matrix.mT @ (self.matrix / self.noise[:, None])
        return torch.cholesky_inverse(torch.linalg.cholesky(prior_precision + information))

    def posterior(self, observation: Float[Tensor, "*q k"]) -> Gaussian:
        """The exact posterior, one per observation."""
        surprise = observation.to(self.matrix) - self.forward(self.prior.mean)
        mean = self.prior.mean + self._pulled(surprise) @ self.posterior_cov
        return _each(mean, self.posterior_cov)

    @cached_property
    def informed(self) -> Subspace:
        """The directions that the readings inform: as many as the participation ratio of their spectrum counts."""
        # rows of A stand for draws of the score: their second moment is the information matrix
        rows = self.matrix * (len(self.matrix) / self.noise[:, None]).sqrt()
        return leading_subspace(score_information(rows, self.prior.cov), self.prior.mean, self.prior.cov)

    @cached_property
    def latent_cov(self) -> Float[Tensor, "r r"]:
        r"""The posterior covariance of the informed features, $\mathrm{diag}(1 / (1 + \lambda_k))$."""
        return torch.diag(1.0 / (1.0 + self.informed.spectrum[: self.informed.rank]))

    def latent_posterior(self, observation: Float[Tensor, "*q k"]) -> Gaussian:
        """The exact posterior of the informed features; `informed.lift` takes its draws back to parameters."""
        mean = self.informed.features(self.posterior(observation).mean[..., None, :])[..., 0, :]
        return _each(mean, self.latent_cov)

    @cached_property
    def resolved_std(self) -> Float[Tensor, "d"]:
        """The posterior standard deviation of each parameter that the informed features carry."""
        lift = self.informed.chart.root
        return ((lift @ self.latent_cov) * lift).sum(-1).sqrt()

    def _residual(self, x: Tensor, observation: Tensor) -> Tensor:
        _checks.same_dim("observation", observation, self.matrix.shape[0])
        return observation[..., None, :] - self.forward(x)

    def _pulled(self, readings: Tensor) -> Tensor:
        return (readings / self.noise) @ self.matrix


def _each(mean: Tensor, cov: Tensor) -> Gaussian:
    """One Gaussian a mean, all of the same covariance."""
    return Gaussian(mean, cov.expand(*mean.shape[:-1], *cov.shape))
