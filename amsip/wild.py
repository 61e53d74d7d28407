"""Wild draws: a few that carry so much of the variance that the moments say nothing about the others."""

import warnings

import torch
from jaxtyping import Bool
from torch import Tensor

from amsip.references.base import Moments, Reference
from amsip.references.projected import Projected
from amsip.references.samples import Samples
from amsip.whitening import Whitening

# of the variance in its direction, one draw's part; and how far out it must be as well, which few draws cannot reach
LARGEST_SHARE = 0.25
FAR = 20.0
REACH = 16.0
# few draws shrink slowly towards the moments of the others: as many rounds more as it takes
ROUNDS, MOST_ROUNDS = 40, 400
RESTING = 1e-4


class WildDraws(UserWarning):
    """A single draw, far out, carries more than a quarter of the variance in its direction."""


def calm_chart(reference: Reference) -> tuple[Whitening, Bool[Tensor, "*q"]]:
    r"""The chart that whitens a posterior, and in which queries wild draws had to be pulled in for it.

    A draw is wild when it alone carries more than a quarter of the variance in its own direction, its *leverage*
    $\alpha_\ell (x_\ell - a)^\top \Sigma^{-1} (x_\ell - a)$, and lies beyond $\sqrt{20\, d}$ standard deviations. In
    a query that has such draws, those beyond $\sqrt{16\, d}$ count as lying there, again and again until the moments
    are those of the others. Elsewhere, and for references that are no draws, the chart is that of the moments. As no
    leverage exceeds one, it takes more than $20\, d$ draws to tell a wild one.

    Example:
        >>> draws = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> draws[0] = 1e6
        >>> with warnings.catch_warnings(action="ignore"):
        ...     chart, wild = calm_chart(Samples(draws))
        >>> bool(wild), bool(chart.root.diagonal().max() < 1.2), bool(chart.centre.abs().max() < 0.2)
        (True, True, True)
    """
    chart = Whitening.of_moments(*reference.moments())
    samples = reference.latent if isinstance(reference, Projected) else reference
    if not isinstance(samples, Samples):
        return chart, torch.zeros(reference.batch_shape, dtype=torch.bool)
    distances = chart.forward(samples.atoms).square().sum(-1)
    leverage = torch.where(distances > FAR * samples.dim, samples.normalised_weights * distances, 0.0)
    wild = leverage.amax(-1) > LARGEST_SHARE
    if not bool(wild.any()):
        return chart, wild
    _warn(leverage, wild)
    moments = tuple(part.clone() for part in samples.moments())
    queries = Samples(samples.atoms[wild].to(torch.float64), samples.normalised_weights[wild])
    for part, of_others in zip(moments, _moments_of_others(queries), strict=True):
        part[wild] = of_others.to(part)
    return Whitening.of_moments(*moments), wild


def _moments_of_others(samples: Samples) -> Moments:
    """The moments with the far draws pulled in; a query rests when its own have settled, whatever the others do."""
    mean, cov = samples.moments()
    resting = torch.zeros(samples.batch_shape, dtype=torch.bool, device=cov.device)
    for count in range(1, MOST_ROUNDS + 1):
        chart = Whitening.of_moments(mean, cov)
        u = chart.forward(samples.atoms)
        pull = (REACH * samples.dim / u.square().sum(-1, keepdim=True)).clamp_max(1.0).sqrt()
        moved = Samples(chart.inverse(pull * u), samples.weights).moments()
        change = chart.inverse_root @ (moved[1] - cov) @ chart.inverse_root.mT
        mean = torch.where(resting[..., None], mean, moved[0])
        cov = torch.where(resting[..., None, None], cov, moved[1])
        if count >= ROUNDS:
            resting = resting | (change.abs().amax((-2, -1)) <= RESTING)
        if bool(resting.all()):
            break
    return mean, cov


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
