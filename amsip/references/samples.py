"""Weighted samples: MCMC draws, importance samples, any finite measure."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import Kernel, sum_terms
from amsip.references.base import Embedding, Moments, Reference, Score
from amsip.references.embeddings import AtomsEmbedding, embed
from amsip.whitening import Whitening


@dataclass(frozen=True, eq=False, init=False)
class Samples(Reference):
    r"""The measure $\rho = \sum_\ell \alpha_\ell \delta_{x_\ell}$ of draws in hand.

    Arguments:
        atoms: The draws, `(n, d)` or `(q, n, d)`; any array-like of finite numbers.
        weights: One non-negative weight a draw, normalised here; equal when not given.
        score: The posterior's score, where the user has one.

    Raises:
        ValueError: A draw is not finite (its row is named), or the shapes do not fit.

    Example:
        >>> draws = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> Samples(draws).moments()[0].shape
        torch.Size([2])
    """

    atoms: Float[Tensor, "*q n d"]
    weights: Float[Tensor, "*q n"] | None
    score: Score | None

    def __init__(
        self, atoms: _checks.ArrayLike, weights: _checks.ArrayLike | None = None, score: Score | None = None
    ) -> None:
        draws = _checks.points("samples", atoms)
        shares = None if weights is None else _checks.sample_weights("sample_weights", weights, draws)
        for name, value in (("atoms", draws), ("weights", shares), ("score", score)):
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The number of coordinates d."""
        return self.atoms.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        return self.atoms.shape[:-2]

    @cached_property
    def normalised_weights(self) -> Float[Tensor, "*q n"]:
        """One weight an atom, summing to one."""
        if self.weights is not None:
            return self.weights
        return torch.full_like(self.atoms[..., 0], 1.0 / self.atoms.shape[-2])

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """Draws with replacement by weight."""
        return self._rows(n, replacement=True, generator=generator)

    def subset(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """Draws without replacement while the atoms that carry weight last, so that seeds are distinct."""
        carrying = int((self.normalised_weights > 0).sum(-1).min())
        return self._rows(n, replacement=n > carrying, generator=generator)

    @cached_property
    def exact_moments(self) -> Moments:
        """`moments` in float64, as they were summed."""
        count = self.atoms.shape[-2]
        rows = list(_linalg.blocks(self.batch_shape.numel() * self.dim, count))
        mean = sum_terms([self._weighed(block).sum(-2) for block in rows])
        cov = sum_terms([self._spread(block, mean) for block in rows])
        return mean, cov

    @cached_property
    def _moments(self) -> Moments:
        mean, cov = self.exact_moments
        return mean.to(self.atoms), cov.to(self.atoms)

    def _weighed(self, rows: slice) -> Tensor:
        return self.normalised_weights[..., rows, None].to(torch.float64) * self.atoms[..., rows, :]

    def _spread(self, rows: slice, mean: Tensor) -> Tensor:
        weights = self.normalised_weights[..., rows, None].to(torch.float64)
        centred = self.atoms[..., rows, :] - mean[..., None, :]
        return (weights * centred).mT @ centred

    def moments(self) -> Moments:
        """Weighted mean and covariance (divided by the total weight, no degrees-of-freedom correction).

        They are summed in float64 and given in the dtype of the draws.
        """
        return self._moments

    def embed(self, kernel: Kernel) -> Embedding:
        """Kernel sums; polynomial parts from the two moments."""
        return embed(self, kernel, lambda k: AtomsEmbedding(k, self.moments(), self.atoms, self.normalised_weights))

    def whiten(self, whitening: Whitening) -> "Samples":
        """The same draws in the chart's coordinates."""
        atoms = whitening.forward(self.atoms)
        weights = None if self.weights is None else self.weights.expand(atoms.shape[:-1])
        score = self.score
        if score is None:
            return Samples(atoms, weights)
        return Samples(atoms, weights, lambda u: whitening.push_gradient(score(whitening.inverse(u))))

    def _rows(self, n: int, *, replacement: bool, generator: torch.Generator | None) -> Tensor:
        flat = self.normalised_weights.reshape(-1, self.atoms.shape[-2])
        if replacement or self.weights is not None:
            index = torch.multinomial(flat, n, replacement=replacement, generator=generator)
        else:
            keys = torch.rand(flat.shape, generator=generator, device=flat.device)
            index = keys.topk(n, dim=-1).indices
        index = index.reshape(*self.batch_shape, n, 1).expand(*self.batch_shape, n, self.dim)
        return self.atoms.gather(-2, index)
