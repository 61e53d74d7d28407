"""A posterior known through a function that draws from it, such as a trained flow."""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip import _checks
from amsip.kernels import Kernel
from amsip.references.base import Embedding, Moments, Reference, Score
from amsip.references.samples import Samples
from amsip.whitening import Whitening

Draw = Callable[[int, torch.Generator | None], Float[Tensor, "*q n d"]]


class Sampler(Reference):
    """A callable that draws, filtered: draws that are not finite or too large are rejected and replaced.

    A bank of draws is taken once, when the reference is made; moments and embeddings are those of the bank.

    Arguments:
        draw: `draw(n, generator)` returns n draws, `(n, d)` or `(q, n, d)`, the same queries at every call.
        dim: The number of coordinates d.
        bank: The number of draws behind moments and embeddings.
        bound: A draw with a coordinate above this magnitude is rejected.
        limit: The largest share of the bank that may be rejected in any query.
        rounds: How many times missing draws are asked for again.
        score: The posterior's score, where there is one.
        generator: Randomness of the bank.

    Raises:
        ValueError: The callable returns another shape, or more than `limit` of its draws are rejected.

    Example:
        >>> flow = Sampler(lambda n, generator: torch.randn(n, 3, generator=generator), 3, bank=100)
        >>> flow.sample(5).shape, flow.rejected.item()
        (torch.Size([5, 3]), 0.0)
    """

    def __init__(
        self,
        draw: Draw,
        dim: int,
        *,
        bank: int = 1024,
        bound: float = 1e4,
        limit: float = 0.1,
        rounds: int = 12,
        score: Score | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        _checks.at_least("bank", bank, 1)
        _checks.positive("bound", bound)
        _checks.at_least("rounds", rounds, 0)
        self.dim = dim
        self.score = score
        self._draw, self._bound, self._rounds = draw, bound, rounds
        self._charts: tuple[Whitening, ...] = ()
        atoms, self._rejected = self._accepted(bank, generator)
        _checks.rejected_share(self._rejected, limit)
        self._bank = Samples(atoms)

    @property
    def batch_shape(self) -> torch.Size:
        return self._bank.batch_shape

    @property
    def bank(self) -> Samples:
        """The draws behind moments and embeddings."""
        return self._bank

    @property
    def rejected(self) -> Float[Tensor, "*q"]:
        """The share of draws rejected while the bank was taken, per query."""
        return self._rejected

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q n d"]:
        """Fresh draws, filtered and topped up."""
        draws, _ = self._accepted(n, generator)
        for chart in self._charts:
            draws = chart.forward(draws)
        return draws

    def moments(self) -> Moments:
        """Mean and covariance of the bank."""
        return self._bank.moments()

    def embed(self, kernel: Kernel) -> Embedding:
        """Kernel sums over the bank."""
        return self._bank.embed(kernel)

    def whiten(self, whitening: Whitening) -> "Sampler":
        """The same draws and the same bank in the chart's coordinates; draws are filtered in their own."""
        charted = copy.copy(self)
        charted._charts = (*self._charts, whitening)
        charted._bank = self._bank.whiten(whitening)
        charted.dim, charted.score = charted._bank.dim, None
        return charted

    def _accepted(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """n good draws a query, and the share that was not."""
        draws = self._asked(n, generator)
        good = self._good(draws)
        for _ in range(self._rounds):
            missing = n - int(good.sum(-1).min())
            if missing <= 0:
                break
            more = self._asked(missing, generator)
            draws, good = torch.cat([draws, more], -2), torch.cat([good, self._good(more)], -1)
        rejected = 1.0 - good.to(draws).mean(-1)
        _checks.enough_draws(int(good.sum(-1).min()), n, rejected)
        first = torch.argsort((~good).to(torch.uint8), dim=-1, stable=True)[..., :n, None]
        return draws.gather(-2, first.expand(*first.shape[:-1], draws.shape[-1])), rejected

    def _asked(self, n: int, generator: torch.Generator | None) -> Tensor:
        with torch.no_grad():
            draws = _checks.floating("draw(n, generator)", self._draw(n, generator))
        # a whitened copy has another dimension than what the callable returns
        dim = self._charts[0].centre.shape[-1] if self._charts else self.dim
        _checks.drawn_shape(draws, n, dim)
        return draws

    def _good(self, draws: Tensor) -> Bool[Tensor, "*q n"]:
        return (torch.isfinite(draws) & (draws.abs() <= self._bound)).all(-1)
