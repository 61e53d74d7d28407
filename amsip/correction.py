"""A Stein control variate: one integrand sharpened by the reference's score, once its values at the nodes are known.

Its reach is narrow, and it says so. *Silent*: where the rule is already tight on this integrand there is nothing left
to correct, and the value moves by less than plain draws could tell. *Harmful*: where the nodes are too few for the
variate to predict a node it has not seen, or do not lie as the score says they should, its own error is added instead;
so too where modes stand far apart, which no smooth variate can bridge. Three signs give that away: predictions of
left-out nodes no better than their mean, a Stein discrepancy far above that of draws, and a shift of more than two
standard errors of plain draws that the predictions do not bear out.
Where independent draws are cheap, a control variate on those is the better use of a score.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import InverseMultiquadric, Radial
from amsip.references.base import Score
from amsip.rules import Integrand, Rule
from amsip.whitening import Whitening

REGIMES = ("helpful", "silent", "harmful")
SILENT_SHARE = 0.05
MISPLACED = 4.0
IMPLAUSIBLE = 2.0
CONVINCING = 0.9


@dataclass(frozen=True, eq=False)
class Correction:
    """The corrected integral, and whether to believe it; `k` outputs of the integrand, or none.

    Arguments:
        value: The corrected integral, whatever the diagnosis.
        plain: The rule's own value.
        explained: The share of the integrand's variation over the nodes that the variate predicts when the node in
            question is left out; negative where it predicts worse than the mean.
        misplacement: The rule's squared Stein discrepancy over what m independent draws would have: about 1 for draws,
            less for a designed rule, of order m where the nodes are not where the score says the mass is.
        regime: The index in `REGIMES`.

    Example:
        >>> one = torch.tensor(1.0)
        >>> Correction(one, 2 * one, one, one, torch.tensor(2)).advised.item()
        2.0
    """

    value: Float[Tensor, "..."]
    plain: Float[Tensor, "..."]
    explained: Float[Tensor, "..."]
    misplacement: Float[Tensor, "..."]
    regime: Int64[Tensor, "..."]

    @property
    def silent(self) -> Bool[Tensor, "..."]:
        """Where there was nothing to correct."""
        return self.regime == REGIMES.index("silent")

    @property
    def harmful(self) -> Bool[Tensor, "..."]:
        """Where the correction should not be used."""
        return self.regime == REGIMES.index("harmful")

    @property
    def advised(self) -> Float[Tensor, "..."]:
        """The corrected value, but the rule's own where the correction is harmful."""
        return torch.where(self.harmful, self.plain, self.value)


def stein_correction(
    rule: Rule,
    f: Integrand | Float[Tensor, "..."],
    score: Score,
    *,
    kernel: Radial | None = None,
    whitening: Whitening | None = None,
    ridge: float = 1e-6,
) -> Correction:
    r"""Subtracts from an integrand a function that integrates to zero by Stein's identity.

    $$\hat h = \sum_j w_j \big(h(z_j) - g(z_j)\big), \qquad
      g = k_0(\cdot, z)\, (K_0 + \varepsilon I)^{-1} (h - c), \qquad \mathbb E_\rho\, g = 0$$

    with k_0 the kernel of `stein_gram` and c the constant of the fit. Section 5.3 of the paper, as a control
    functional fitted on the nodes.

    Arguments:
        rule: The nodes and their weights, of total one.
        f: The integrand, or its values at the nodes, `(..., m)` or `(..., m, k)`.
        score: grad log rho in the nodes' coordinates, on `(..., n, d)`.
        kernel: The kernel k in whitened coordinates; an inverse multiquadric of bandwidth 2 sqrt(d) when not given.
        whitening: The chart; that of the rule's reference, where known, when not given.
        ridge: epsilon, relative to the mean diagonal of K_0.

    Returns:
        The corrected value, the plain one, and the diagnosis.

    Raises:
        NumericalError: The ridged Stein Gram has no Cholesky factor.

    Example:
        >>> from amsip import Gaussian
        >>> posterior = Gaussian(torch.zeros(1, dtype=torch.float64), torch.eye(1, dtype=torch.float64))
        >>> draws = posterior.sample(16, generator=torch.Generator().manual_seed(0))
        >>> rule = Rule(draws, torch.full((16,), 1 / 16, dtype=torch.float64))
        >>> corrected = stein_correction(rule, lambda x: x[:, 0] ** 2, posterior.score)
        >>> abs(corrected.value - 1) < 0.2 * abs(corrected.plain - 1), REGIMES[corrected.regime]
        (tensor(True), 'helpful')
    """
    nodes, weights = rule.nodes.to(torch.float64), rule.weights.to(torch.float64)
    values = rule.evaluate(f).to(torch.float64)
    several = values.ndim > weights.ndim
    values = values if several else values[..., None]
    scores = score(rule.nodes).to(torch.float64)
    _checks.one_score_per_node(scores, nodes)
    chart = (
        whitening if whitening is not None or rule.embedding is None else Whitening.of_moments(*rule.embedding.moments)
    )
    if chart is not None:
        # the score is a covector: it takes the inverse of what the points take
        nodes, scores = chart.forward(nodes), scores @ chart.root.to(scores)
    gram = stein_gram(
        nodes, scores, InverseMultiquadric(2.0 * math.sqrt(nodes.shape[-1])) if kernel is None else kernel
    )
    fitted, explained = _fit(gram, values, ridge)
    result = _diagnosed(gram, weights, values, fitted, explained)
    if several:
        return result
    return Correction(*(getattr(result, name)[..., 0] for name in result.__dataclass_fields__))


def stein_gram(x: Float[Tensor, "*q m d"], scores: Float[Tensor, "*q m d"], kernel: Radial) -> Float[Tensor, "*q m m"]:
    r"""The Gram of Stein's kernel, every function of whose space integrates to zero.

    $$k_0 = d\, s - t\, r^2 + s\, (x - y) \cdot (\nabla \log \rho(x) - \nabla \log \rho(y))
      + k\, \nabla \log \rho(x) \cdot \nabla \log \rho(y)$$

    with s the shadow of the kernel and t the shadow of that.

    Example:
        >>> from amsip import SquaredExponential
        >>> stein_gram(torch.zeros(1, 3), torch.zeros(1, 3), SquaredExponential(1.0)).item()
        3.0
    """
    r2 = _linalg.pairwise_squared_distances(x)
    value, shadow = kernel.profile(r2)
    own = (x * scores).sum(-1)
    cross = x @ scores.mT
    pull = own[..., :, None] + own[..., None, :] - cross - cross.mT
    return x.shape[-1] * shadow - kernel.second_shadow(r2) * r2 + shadow * pull + value * (scores @ scores.mT)


def _fit(gram: Tensor, values: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """The variate at the nodes, and the share of variation it predicts at a node left out."""
    m = gram.shape[-1]
    factor = _linalg.jittered_cholesky(gram, ridge)
    solved = torch.cholesky_solve(torch.cat([values, torch.ones_like(values[..., :1])], -1), factor)
    solved, unit = solved[..., :-1], solved[..., -1:]
    constant = solved.sum(-2, keepdim=True) / unit.sum(-2, keepdim=True)
    residual = solved - unit * constant
    if m == 1:
        return gram @ residual, torch.full_like(values[..., 0, :], -torch.inf)
    diagonal = torch.cholesky_inverse(factor).diagonal(dim1=-2, dim2=-1)[..., None]
    left_out = residual / (diagonal - unit.square() / unit.sum(-2, keepdim=True))
    spread = (values - values.mean(-2, keepdim=True)) * (m / (m - 1))
    scale = spread.square().sum(-2)
    missed = left_out.square().sum(-2) / torch.where(scale > 0, scale, 1.0)
    return gram @ residual, torch.where(scale > 0, 1.0 - missed, torch.zeros_like(scale))


def _diagnosed(gram: Tensor, weights: Tensor, values: Tensor, fitted: Tensor, explained: Tensor) -> Correction:
    m = gram.shape[-1]
    plain = (weights[..., None] * values).sum(-2)
    shift = (weights[..., None] * fitted).sum(-2)
    stein = (weights[..., None, :] @ gram @ weights[..., None])[..., 0, 0]
    misplacement = (m * stein / gram.diagonal(dim1=-2, dim2=-1).mean(-1))[..., None].expand_as(plain)
    noise = values.std(-2, correction=0) / math.sqrt(m)
    implausible = (shift.abs() > IMPLAUSIBLE * noise) & (explained < CONVINCING)
    harmful = (explained <= 0.0) | (misplacement > MISPLACED) | implausible
    # a shift too small to matter does no harm either
    regime = torch.where(shift.abs() <= SILENT_SHARE * noise, 1, torch.where(harmful, 2, 0))
    return Correction(plain - shift, plain, explained, misplacement, regime)
