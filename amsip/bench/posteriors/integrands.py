"""What users integrate: nine families of functions of the whitened posterior, and what a rule is worth on each."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.whitening import Whitening

FAMILIES = (
    "linear",
    "square",
    "cross",
    "exponential",
    "oscillating",
    "smooth tail",
    "indicator",
    "non-smooth",
    "shortfall",
)
DIRECTIONS = 8
RESAMPLES = 1000


@dataclass(frozen=True)
class Integrands:
    r"""The families of one posterior, evaluated together: every member is one column.

    With u one of eight fixed unit vectors and q_p the p-quantile of $u^\top x$ over the pool, x whitened by the pool:
    $x_i$, $x_i^2$, $(u^\top x)^2$, $e^{0.7 u^\top x}$, $\cos(1.5 u^\top x + 0.3)$,
    $\mathrm{sigmoid}(4 (u^\top x - q_{.95}))$, $1\{u^\top x > q_{.90}\}$, $\max_i |x_i|$ and
    $\max(u^\top x - q_{.90}, 0)$.

    Arguments:
        chart: The whitening of the pool.
        directions: The unit vectors u, as columns.
        q90: Their 0.90-quantiles over the pool.
        q95: Their 0.95-quantiles over the pool.

    Example:
        >>> draws = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> Integrands.of_pool(draws)(draws).shape
        torch.Size([500, 55])
    """

    chart: Whitening = field(repr=False)
    directions: Float[Tensor, "d u"] = field(repr=False)
    q90: Float[Tensor, " u"]
    q95: Float[Tensor, " u"]

    @classmethod
    def of_pool(cls, pool: Float[Tensor, "n d"], chart: Whitening | None = None) -> "Integrands":
        """The integrands of a pool of draws, whitened by its moments; the directions depend on d alone."""
        chart = Whitening.of_samples(pool) if chart is None else chart
        directions = unit_vectors(pool.shape[-1]).to(pool)
        along = chart.forward(pool) @ directions
        return cls(chart, directions, along.quantile(0.90, dim=0), along.quantile(0.95, dim=0))

    @property
    def families(self) -> dict[str, slice]:
        """The columns of each family."""
        d, u = self.directions.shape
        widths = dict.fromkeys(FAMILIES, u) | {"linear": d, "square": d, "non-smooth": 1}
        columns, start = {}, 0
        for family in FAMILIES:
            columns[family] = slice(start, start + widths[family])
            start += widths[family]
        return columns

    def __call__(self, x: Float[Tensor, "*q n d"]) -> Float[Tensor, "*q n h"]:
        """All members at all points, given in the posterior's own coordinates."""
        white = self.chart.forward(x)
        along = white @ self.directions
        excess = along - self.q90
        columns = (
            white,
            white.square(),
            along.square(),
            torch.exp(0.7 * along),
            torch.cos(1.5 * along + 0.3),
            torch.sigmoid(4.0 * (along - self.q95)),
            (excess > 0).to(x),
            white.abs().amax(-1, keepdim=True),
            excess.clamp_min(0.0),
        )
        return torch.cat(columns, -1)


def unit_vectors(dim: int) -> Float[Tensor, "d u"]:
    """Eight random unit vectors, the same in every run."""
    generator = torch.Generator().manual_seed(20_000 + dim)
    vectors = torch.randn(dim, DIRECTIONS, dtype=torch.float64, generator=generator)
    return vectors / vectors.norm(dim=0)


@dataclass(frozen=True)
class Worth:
    """What a node is worth: per family the raw multiplier, and two numbers over families after the cap.

    Arguments:
        raw: Per family, 1 / (M mean(MSE / Var)), with the interval of a bootstrap over seed sets.
        capped: The geometric mean over families of min(raw, n / M), with its interval.
        minimum: The smallest over families, with its interval.
    """

    raw: dict[str, tuple[float, float, float]]
    capped: tuple[float, float, float]
    minimum: tuple[float, float, float]


def multipliers(
    estimates: Float[Tensor, "r h"],
    truth: Float[Tensor, " h"],
    variance: Float[Tensor, " h"],
    families: dict[str, slice],
    m: int,
    n: int,
) -> Worth:
    r"""How many independent draws each node replaces, per family of integrands.

    $$\text{multiplier} = \frac{1}{M}\Big(\operatorname{mean}_h \frac{\mathrm{MSE}(h)}{\mathrm{Var}(h)}\Big)^{-1}$$

    The mean is over the members of the family first. No rule that sees n draws is worth more than n of them, so the
    multiplier is capped at n / M before families are averaged.

    Arguments:
        estimates: What each of r independent rules says of each integrand.
        truth: What it should say.
        variance: The variance of each integrand under the posterior.
        families: The columns of each family.
        m: The number of nodes M.
        n: The number of draws the rules could see.

    Returns:
        Values with 90% intervals of a bootstrap over the r rules.
    """
    ratio = (estimates - truth).square() / variance.clamp_min(torch.finfo(variance.dtype).tiny)
    per_rule = torch.stack([ratio[:, columns].mean(-1) for columns in families.values()], -1)
    r = per_rule.shape[0]
    generator = torch.Generator().manual_seed(r)
    chosen = torch.randint(r, (RESAMPLES, r), generator=generator)
    errors = torch.cat([per_rule.mean(0, keepdim=True), per_rule[chosen].mean(1)])
    raw = 1.0 / (m * errors.clamp_min(1e-30))
    capped = raw.clamp_max(n / m)
    return Worth(
        {name: _with_interval(raw[:, i]) for i, name in enumerate(families)},
        _with_interval(capped.log().mean(-1).exp()),
        _with_interval(capped.amin(-1)),
    )


def _with_interval(values: Tensor) -> tuple[float, float, float]:
    """The first value, and the 5% and 95% quantiles of the others."""
    if not bool(torch.isfinite(values).all()):
        return float("nan"), float("nan"), float("nan")
    low, high = values[1:].quantile(torch.tensor([0.05, 0.95], dtype=values.dtype)).tolist()
    return values[0].item(), low, high
