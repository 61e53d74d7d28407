"""Wild draws: a few that carry so much of the variance that the moments say nothing about the others."""

import warnings

import torch
from jaxtyping import Bool
from torch import Tensor

from amsip.references.base import Reference
from amsip.references.samples import Samples
from amsip.whitening import Whitening

# of the variance in its direction, one draw's part; and how far out it must be as well, which few draws cannot reach
LARGEST_SHARE = 0.25
FAR = 20.0
REACH = 16.0
ROUNDS = 40


class WildDraws(UserWarning):
    """A single draw carries more than a quarter of the variance of its posterior."""


def calm_chart(reference: Reference) -> tuple[Whitening, Bool[Tensor, "*q"]]:
    r"""The chart that whitens a posterior, and in which queries wild draws had to be pulled in for it.

    A draw is wild when it alone carries more than a quarter of the variance in its own direction, its *leverage*
    $\alpha_\ell (x_\ell - a)^\top \Sigma^{-1} (x_\ell - a)$, and lies beyond $\sqrt{20\, d}$ standard deviations. In
    a query that has such draws, those beyond $\sqrt{16\, d}$ count as lying there, again and again until the moments
    are those of the others. Elsewhere, and for references that are no draws, the chart is that of the moments.

    Example:
        >>> draws = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> draws[0] = 1e6
        >>> with warnings.catch_warnings(action="ignore"):
        ...     chart, wild = calm_chart(Samples(draws))
        >>> bool(wild), bool(chart.root.diagonal().max() < 1.2), bool(chart.centre.abs().max() < 0.2)
        (True, True, True)
    """
    chart = Whitening.of_moments(*reference.moments())
    if not isinstance(reference, Samples):
        return chart, torch.zeros(reference.batch_shape, dtype=torch.bool)
    distances = chart.forward(reference.atoms).square().sum(-1)
    leverage = torch.where(distances > FAR * reference.dim, reference.normalised_weights * distances, 0.0)
    wild = leverage.amax(-1) > LARGEST_SHARE
    if not bool(wild.any()):
        return chart, wild
    _warn(leverage, wild)
    others, all_draws = _pulled_in(reference, chart).moments(), reference.moments()
    mean = torch.where(wild[..., None], others[0], all_draws[0])
    return Whitening.of_moments(mean, torch.where(wild[..., None, None], others[1], all_draws[1])), wild


def _pulled_in(samples: Samples, chart: Whitening) -> Samples:
    """The draws with the far ones pulled in; the number of rounds is fixed, so that no query looks at another."""
    for _ in range(ROUNDS):
        u = chart.forward(samples.atoms)
        pull = (REACH * samples.dim / u.square().sum(-1, keepdim=True)).clamp_max(1.0).sqrt()
        calm = Samples(chart.inverse(pull * u), samples.weights)
        chart = Whitening.of_moments(*calm.moments())
    return calm


def _warn(leverage: Tensor, wild: Tensor) -> None:
    share, row = leverage.max(-1)
    first = wild.flatten().to(torch.uint8).argmax()
    where = f"{int(wild.sum())} of {wild.numel()} queries have wild draws: in the first, " if wild.ndim else ""
    warnings.warn(
        f"{where}row {int(row.flatten()[first])} carries {100.0 * share.flatten()[first]:.0f}% of the variance in its "
        "direction. The other draws set the scale, and means and covariances are not made exact. Leave such draws out "
        "or transform the coordinates (a logarithm) if these are not the tails you mean.",
        WildDraws,
        stacklevel=5,
    )
