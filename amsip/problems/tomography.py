"""Limited-angle tomography with a Gaussian field and Gaussian noise: a linear inverse problem solved exactly."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.problems.projector import RayProjector
from amsip.references.gaussian import Gaussian
from amsip.subspace import Subspace, leading_subspace, score_information

PAPER_GEOMETRY = RayProjector(size=16, angles=16, detectors=16, steps=32, half_range=75.0)


@dataclass(frozen=True, eq=False)
class Tomography:
    r"""An image seen through noisy ray sums over a restricted range of angles.

    $$x \sim \mathcal N\big(0,\ \tau^2 (\delta I + \Delta)^{-\alpha}\big), \qquad
      y = A x + \varepsilon, \quad \varepsilon \sim \mathcal N(0, \varsigma^2 I)$$

    Delta is the graph Laplacian of the pixel grid, each pixel joined to the two to four beside it. The posterior is
    Gaussian; its covariance does not depend on y. The defaults are the paper's problem of 16 x 16 pixels.

    Arguments:
        projector: A.
        noise: The standard deviation of a reading.
        shift: delta, which bounds the variance of the smoothest fields.
        power: alpha, the smoothness.
        scale: tau.

    Example:
        >>> problem = Tomography()
        >>> images, observations = problem.simulate(3, generator=torch.Generator().manual_seed(0))
        >>> images.shape, observations.shape, problem.posterior(observations).moments()[0].shape
        (torch.Size([3, 256]), torch.Size([3, 256]), torch.Size([3, 256]))
        >>> [round(value, 2) for value in problem.informed.spectrum[:3].tolist()], problem.informed.rank
        ([26.63, 10.18, 7.51], 7)
    """

    projector: RayProjector = PAPER_GEOMETRY
    noise: float = 0.8
    shift: float = 0.5
    power: float = 2.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("noise", "shift", "power", "scale"):
            _checks.positive(name, getattr(self, name))

    @property
    def dim(self) -> int:
        """The number of pixels."""
        return self.projector.pixels

    @cached_property
    def prior(self) -> Gaussian:
        """The Gaussian field."""
        values, vectors = torch.linalg.eigh(grid_laplacian(self.projector.size))
        cov = (vectors * (self.scale**2 * (self.shift + values) ** -self.power)) @ vectors.mT
        return Gaussian(torch.zeros(self.dim, dtype=torch.float64), 0.5 * (cov + cov.mT))

    def forward(self, images: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q readings"]:
        """The noise-free readings A x."""
        return self.projector.project(images)

    def simulate(
        self, n: int, *, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n pixels"], Float[Tensor, "n readings"]]:
        """Joint draws: images from the prior and their noisy readings."""
        images = self.prior.sample(n, generator=generator)
        clean = self.forward(images)
        noise = torch.randn(clean.shape, generator=generator, dtype=clean.dtype, device=clean.device)
        return images, clean + self.noise * noise

    def log_likelihood(
        self, images: Float[Tensor, "*#q n pixels"], observation: Float[Tensor, "*q readings"]
    ) -> Float[Tensor, "*q n"]:
        """log p(y | x), normalised."""
        square = self._residual(images, observation).square().sum(-1) / self.noise**2
        return -0.5 * (square + self.projector.readings * math.log(2.0 * math.pi * self.noise**2))

    def likelihood_score(
        self, images: Float[Tensor, "*#q n pixels"], observation: Float[Tensor, "*q readings"]
    ) -> Float[Tensor, "*q n pixels"]:
        r"""The gradient in x of the log likelihood, $A^\top (y - A x) / \varsigma^2$."""
        return self.projector.backproject(self._residual(images, observation)) / self.noise**2

    def score(
        self, images: Float[Tensor, "*#q n pixels"], observation: Float[Tensor, "*q readings"]
    ) -> Float[Tensor, "*q n pixels"]:
        """The gradient in x of the log posterior density, from the likelihood and the prior."""
        return self.likelihood_score(images, observation) + self.prior.score(images)

    @cached_property
    def posterior_cov(self) -> Float[Tensor, "pixels pixels"]:
        r"""$(S^{-1} + A^\top A / \varsigma^2)^{-1}$, the same for every observation."""
        precision = torch.cholesky_inverse(torch.linalg.cholesky(self.prior.cov)) + self._normal_matrix
        return torch.cholesky_inverse(torch.linalg.cholesky(precision))

    def posterior(self, observation: Float[Tensor, "*q readings"]) -> Gaussian:
        """The exact posterior of the image, one per observation."""
        pulled = self.projector.backproject(observation.to(torch.float64)) / self.noise**2
        return _shifted(pulled @ self.posterior_cov, self.posterior_cov)

    @cached_property
    def informed(self) -> Subspace:
        """The directions of the image that the readings inform: as many as the participation ratio counts."""
        # the rays stand for draws of the score, whose second moment is the information matrix A'A / noise^2
        rays = self.projector.matrix.to_dense() * (self.projector.readings**0.5 / self.noise)
        return leading_subspace(score_information(rays, self.prior.cov), self.prior.mean, self.prior.cov)

    @cached_property
    def latent_cov(self) -> Float[Tensor, "r r"]:
        r"""The posterior covariance of the informed features, $\mathrm{diag}(1 / (1 + \lambda_k))$."""
        return torch.diag(1.0 / (1.0 + self.informed.spectrum[: self.informed.rank]))

    def latent_posterior(self, observation: Float[Tensor, "*q readings"]) -> Gaussian:
        """The exact posterior of the informed features; `informed.lift` takes its draws back to images."""
        mean = self.informed.features(self.posterior(observation).mean[..., None, :])[..., 0, :]
        return _shifted(mean, self.latent_cov)

    @cached_property
    def resolved_std(self) -> Float[Tensor, "pixels"]:
        """The posterior standard deviation of each pixel that the informed features carry."""
        lift = self.informed.chart.root
        return ((lift @ self.latent_cov) * lift).sum(-1).sqrt()

    @cached_property
    def _normal_matrix(self) -> Tensor:
        matrix = self.projector.matrix.to_dense()
        return matrix.mT @ matrix / self.noise**2

    def _residual(self, images: Tensor, observation: Tensor) -> Tensor:
        _checks.same_dim("observation", observation, self.projector.readings)
        return observation[..., None, :] - self.forward(images)


def grid_laplacian(size: int) -> Float[Tensor, "pixels pixels"]:
    """The graph Laplacian of a square grid: each pixel's number of neighbours, less one for each of them.

    Example:
        >>> grid_laplacian(3).diagonal()
        tensor([2., 3., 2., 3., 4., 3., 2., 3., 2.], dtype=torch.float64)
    """
    _checks.at_least("size", size, 2)
    bonds = torch.zeros(size, size, dtype=torch.float64)
    bonds[range(size - 1), range(1, size)] = -1.0
    line = bonds + bonds.mT
    line = line - torch.diag(line.sum(-1))
    identity = torch.eye(size, dtype=torch.float64)
    return torch.kron(line, identity) + torch.kron(identity, line)


def _shifted(mean: Tensor, cov: Tensor) -> Gaussian:
    """One Gaussian a mean, all of the same covariance."""
    return Gaussian(mean, cov.expand(*mean.shape[:-1], *cov.shape))
