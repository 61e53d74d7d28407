"""The two abstract types of the seam: a Reference is what is integrated, an Embedding is all that a map sees of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.kernels import Kernel
from amsip.whitening import Whitening

Score = Callable[[Float[Tensor, "*q n d"]], Float[Tensor, "*q n d"]]
Moments = tuple[Float[Tensor, "*q d"], Float[Tensor, "*q d d"]]


class Embedding(ABC):
    r"""The kernel mean embedding of a reference: mu(z) = E k(z, X), its gradient, and c = E k(X, X').

    Maps, weights and the discrepancy read a posterior through this type only.
    """

    kernel: Kernel
    moments: Moments

    @property
    def dim(self) -> int:
        """The number of coordinates d."""
        return self.moments[0].shape[-1]

    @property
    def effective_draws(self) -> float | Float[Tensor, "*q"]:
        """How many independent draws the reference consists of: infinite for a closed form, 1 / sum of squared
        weights for atoms."""
        return math.inf

    @property
    @abstractmethod
    def energy(self) -> Float[Tensor, "*q"]:
        """The self-affinity c = E k(X, X') in float64, for atoms the V-statistic (with its diagonal); lazy."""

    @abstractmethod
    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        """mu at the nodes."""

    @abstractmethod
    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        """mu at the nodes and its gradient."""


class Reference(ABC):
    """A posterior the user commits to: it can be sampled, and it has two moments and a kernel mean embedding."""

    dim: int
    score: Score | None = None

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """The leading query axes."""

    @abstractmethod
    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """Independent draws."""

    @abstractmethod
    def moments(self) -> Moments:
        """Mean and covariance."""

    @abstractmethod
    def embed(self, kernel: Kernel) -> Embedding:
        """The kernel mean embedding under `kernel`."""

    @abstractmethod
    def whiten(self, whitening: Whitening) -> "Reference":
        """The same posterior in the coordinates u = R (x - a)."""
