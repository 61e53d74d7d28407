"""Ellipse phantoms seen through a wedge of angles: simulation, likelihood, and an image made of the observation."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from amsip import _checks
from amsip.problems.phantoms import phantoms
from amsip.problems.projector import RayProjector

NOISE = 0.01
CHUNK = 256


@dataclass(frozen=True, eq=False)
class LimitedAngle:
    r"""Tomography of 64 x 64 phantoms from 60 angles over 120 degrees, 90 detectors, noise at 40 dB.

    $$y = A x + \sigma \varepsilon, \qquad \sigma = 0.01\, \mathrm{rms}(A x)$$

    The geometry and the noise were read in the authors' public successor repository; the implementation is
    independent. Images and sinograms are flattened.

    Arguments:
        projector: The rays.

    Example:
        >>> problem = LimitedAngle(RayProjector(64, 6, 9, 32, 60.0))
        >>> images, observations, noise = problem.simulate(3, generator=torch.Generator().manual_seed(0))
        >>> images.shape, observations.shape, noise.shape
        (torch.Size([3, 4096]), torch.Size([3, 54]), torch.Size([3]))
        >>> bool(problem.log_likelihood(images, observations, noise).mean() > -54)
        True
    """

    projector: RayProjector = field(default_factory=lambda: RayProjector(64, 60, 90, 128, 60.0))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of an image, as maps that read one want it."""
        return 1, self.projector.size, self.projector.size

    @cached_property
    def matrix(self) -> Float[Tensor, "readings pixels"]:
        """A, dense in float32: with thousands of images at once, faster than sparse."""
        return self.projector.matrix.to(torch.float32).to_dense()

    def prior(self, count: int, *, generator: Generator | None = None) -> Float[Tensor, "count pixels"]:
        """Phantoms."""
        return phantoms(count, size=self.projector.size, generator=generator).flatten(1)

    def forward(self, images: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q readings"]:
        """A x."""
        _checks.same_dim("images", images, self.projector.pixels)
        return images @ self.matrix.to(images).mT

    def simulate(
        self, count: int, *, generator: Generator | None = None
    ) -> tuple[Float[Tensor, "count pixels"], Float[Tensor, "count readings"], Float[Tensor, "count"]]:
        """Phantoms, what is observed of them, and the noise's standard deviation in each observation."""
        images = self.prior(count, generator=generator)
        clean = self.forward(images)
        noise = NOISE * clean.square().mean(-1).sqrt()
        return images, clean + noise[:, None] * torch.randn(clean.shape, generator=generator), noise

    def log_likelihood(
        self,
        images: Float[Tensor, "*q pixels"],
        observation: Float[Tensor, "*#q readings"],
        noise: Float[Tensor, "*#q"],
    ) -> Float[Tensor, "*q"]:
        """log p(y | x) without its constant, the noise's standard deviation given."""
        return -0.5 * ((observation - self.forward(images)) / noise[..., None]).square().sum(-1)

    def likelihood_score(
        self,
        images: Float[Tensor, "*q pixels"],
        observation: Float[Tensor, "*#q readings"],
        noise: Float[Tensor, "*#q"],
    ) -> Float[Tensor, "*q pixels"]:
        """The gradient of `log_likelihood` in x: A'(y - A x) / sigma^2."""
        misfit = (observation - self.forward(images)) / noise[..., None].square()
        return misfit @ self.matrix.to(images)

    def encode(self, observations: Float[Tensor, "*q readings"]) -> Float[Tensor, "*q pixels"]:
        r"""Filtered back-projection $A' F y$: every angle's readings under the ramp filter |f|, zero-padded."""
        _checks.same_dim("observations", observations, self.projector.readings)
        detectors = self.projector.detectors
        rows = observations.unflatten(-1, (self.projector.angles, detectors))
        spectrum = torch.fft.rfft(rows, 2 * detectors)
        ramp = torch.fft.rfftfreq(2 * detectors, dtype=rows.dtype)
        filtered = torch.fft.irfft(spectrum * ramp, 2 * detectors)[..., :detectors]
        return filtered.flatten(-2) @ self.matrix.to(observations)

    def pairs(
        self, count: int, *, generator: Generator | None = None
    ) -> tuple[Float[Tensor, "count pixels"], Float[Tensor, "count pixels"]]:
        """Phantoms and their filtered back-projections, some at a time in bounded memory."""
        images, encoded = [], []
        for start in range(0, count, CHUNK):
            x, y, _ = self.simulate(min(CHUNK, count - start), generator=generator)
            images.append(x)
            encoded.append(self.encode(y))
        return torch.cat(images), torch.cat(encoded)
