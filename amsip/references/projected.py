"""A posterior seen through an informed subspace; the rest of its directions keep their prior."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.kernels import Kernel
from amsip.references.base import Embedding, Moments, Reference
from amsip.subspace import Subspace
from amsip.whitening import Whitening


@dataclass(frozen=True, eq=False)
class Projected(Reference):
    r"""The law of the features $z = V^\top S^{-1/2}(x - m)$ of a posterior, with the way back.

    Closed-form references stay closed form, samples stay samples. Off the subspace the posterior is taken to be the
    prior, which is exact when the likelihood depends on the features alone.

    Arguments:
        reference: The posterior of the parameters x.
        subspace: The informed directions.

    Example:
        >>> from amsip import Mixture
        >>> from amsip.subspace import leading_subspace
        >>> posterior = Mixture(torch.ones(1), torch.zeros(1, 3), torch.diag(torch.tensor([0.1, 1.0, 1.0]))[None])
        >>> line = leading_subspace(torch.diag(torch.tensor([9.0, 0.0, 0.0])), torch.zeros(3), torch.eye(3), rank=1)
        >>> latent = Projected(posterior, line)
        >>> latent.dim, round(latent.moments()[1].item(), 3)
        (1, 0.1)
    """

    reference: Reference
    subspace: Subspace

    def __post_init__(self) -> None:
        _checks.same_dim("subspace.directions", self.subspace.directions.mT, self.reference.dim)

    @cached_property
    def latent(self) -> Reference:
        """The law of the features, as a reference of the kind that was given."""
        return self.reference.whiten(self.subspace.chart)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The number of features r."""
        return self.subspace.rank

    @property
    def batch_shape(self) -> torch.Size:
        return self.reference.batch_shape

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n r"]:
        """Features of draws of the posterior."""
        return self.latent.sample(n, generator=generator)

    def moments(self) -> Moments:
        """Mean and covariance of the features."""
        return self.latent.moments()

    def embed(self, kernel: Kernel) -> Embedding:
        """The embedding of the features."""
        return self.latent.embed(kernel)

    def whiten(self, whitening: Whitening) -> Reference:
        """The features in a chart of theirs."""
        return self.latent.whiten(whitening)

    def lift(self, nodes: Float[Tensor, "*q m r"]) -> Float[Tensor, "*q m d"]:
        """Nodes of the features as parameters, the complement at its prior mean."""
        return self.subspace.lift(nodes)

    def complete(
        self, nodes: Float[Tensor, "*q m r"], weights: Float[Tensor, "*q m"]
    ) -> tuple[Float[Tensor, "*q d"], Float[Tensor, "*q d d"]]:
        r"""Posterior mean and covariance of the parameters from a unit-sum rule on the features.

        $$\mathbb E x \approx m + U \bar z, \qquad
          \mathrm{Cov}\, x \approx U\, \mathrm{Cov}_w(z)\, U^\top + S - U U^\top, \qquad U = S^{1/2} V$$
        """
        mean = (weights[..., None] * nodes).sum(-2)
        centred = nodes - mean[..., None, :]
        return self.subspace.complete(mean, (weights[..., None] * centred).mT @ centred)
