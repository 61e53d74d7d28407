"""How far an integral may be off, from the values at the nodes alone."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import Kernel
from amsip.references.base import Embedding
from amsip.weights import JITTER

CALIBRATION = Path(__file__).parent / "data" / "calibration.json"
ROUGH = 0.25
# the least and the largest budget of the calibration: beyond them its trends say nothing
CALIBRATED = (8, 128)
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Evidence:
    r"""What the values of an integrand at the nodes say about its integral's error.

    Arguments:
        variance: Of the integrand under the posterior, from the rule itself.
        jackknife: $\sum_j w_j^2 r_j^2$, with r_j the error of predicting f at node j from the other nodes.
        amplitude: $y^\top P y / (m - 1)$, the squared norm per node of the smoothest interpolant in the kernel's space.
        predictable: The share of the values' variation that leave-one-out predictions explain.

    Example:
        >>> from amsip import SquaredExponential
        >>> z = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
        >>> w = torch.full((9,), 1 / 9, dtype=torch.float64)
        >>> jump = (z[:, 0] > 0.1).double()
        >>> smooth, rough = (evidence(z, w, y, SquaredExponential(1.0)) for y in (z[:, 0].sin(), jump))
        >>> bool(smooth.predictable > 0.9) and bool(rough.predictable < 0.5)
        True
    """

    variance: Float[Tensor, "*k"]
    jackknife: Float[Tensor, "*k"]
    amplitude: Float[Tensor, "*k"]
    predictable: Float[Tensor, "*k"]

    def features(self, m: int, dim: int) -> Float[Tensor, "*k f"]:
        """What the calibrated log variance is linear in."""
        per_node = (self.variance / m).clamp_min(TINY)
        log_jackknife = (self.jackknife / per_node).clamp(1e-12, 1e4).log()
        log_amplitude = (self.amplitude / self.variance.clamp_min(TINY)).clamp(1e-9, 1e9).log()
        least, largest = CALIBRATED
        budget, size = torch.tensor(float(min(max(m, least), largest))).log(), torch.tensor(float(dim)).log()
        one = torch.ones_like(log_jackknife)
        columns = [one, log_jackknife, log_amplitude, log_jackknife.square() / 10.0, one * budget, one * size]
        columns += [one * budget * size, self.predictable.clamp(-2.0, 1.0), one * budget.square()]
        return torch.stack(columns, -1)

    @property
    def rough(self) -> Bool[Tensor, "*k"]:
        """Whether other nodes say so little about a node that the integrand looks rough at the nodes' spacing.

        An oscillation that regularly spaced nodes meet once a period looks smooth from them, whatever one does.
        """
        # a value that is not a number explains nothing either
        return ~((self.predictable >= ROUGH) & (self.variance > TINY))


@dataclass(frozen=True)
class Estimate:
    r"""An integral, and how far it may be off: less than one standard error seven times in ten, than two nine times.

    $$\mathrm{standard\ error}^2 = \mathrm{quadrature\ error}^2 + s^2 / n_{\mathrm{eff}}$$

    Calibrated on rules of 8 to 128 nodes, without wild draws (`amsip.wild`).

    Arguments:
        value: The weighted average, one number (or k) per query.
        standard_error: Against the posterior that the reference samples: the two parts below together.
        quadrature_error: Against the reference in hand.
        reference_error: What the reference's own draws leave open, whatever is done with them.
        equivalent_draws: How many independent draws of the posterior would err as little as this estimate.
        rough: The integrand looks rough at the spacing of the nodes, or is constant on them: the error is then of
            the order of plain draws or not assessable. Smooth it, use more nodes, or average over draws.

    Example:
        >>> Estimate(torch.tensor(1.0), torch.tensor(0.1)).standard_error
        tensor(0.1000)
    """

    value: Tensor
    standard_error: Tensor
    quadrature_error: Tensor | None = None
    reference_error: Tensor | None = None
    equivalent_draws: Tensor | None = None
    rough: Tensor | None = None


def estimate(
    nodes: Float[Tensor, "*q m d"],
    weights: Float[Tensor, "*q m"],
    values: Shaped[Tensor, "..."],
    embedding: Embedding,
    draws: float | None = None,
) -> Estimate:
    """The estimate of `Rule.estimate`, from values of shape `(..., m)` or `(..., m, k)`."""
    if draws is not None:
        _checks.above_zero("draws", draws)
    # yes-or-no values are numbers here: weights cast to theirs would be yes or no too
    values = values if values.is_floating_point() else values.to(weights)
    found = evidence(nodes, weights, values, embedding.kernel)
    count = torch.as_tensor(embedding.effective_draws if draws is None else draws, dtype=torch.float64)
    if count.ndim and values.ndim > weights.ndim:
        count = count[..., None]
    squared = stated_variance(found, nodes.shape[-2], nodes.shape[-1])
    if nodes.shape[-2] == 1:
        # one value says nothing about how the integrand varies
        squared = torch.full_like(squared, torch.inf)
    noise = found.variance / count
    lifted = weights if values.ndim == weights.ndim else weights[..., None]
    value = (lifted.to(values) * values).sum(weights.ndim - 1)
    total = squared + noise
    return Estimate(
        value, total.sqrt(), squared.sqrt(), noise.sqrt(), found.variance / total.clamp_min(TINY), found.rough
    )


def evidence(
    nodes: Float[Tensor, "*q m d"], weights: Float[Tensor, "*q m"], values: Float[Tensor, "..."], kernel: Kernel
) -> Evidence:
    """The evidence for values of shape `(..., m)` or `(..., m, k)`."""
    z, w = nodes.to(torch.float64), weights.to(torch.float64)
    y = values.to(torch.float64)
    flat = y[..., None] if y.ndim == w.ndim else y
    precision = _projected_precision(kernel.gram(z))
    centre = (w[..., None] * flat).sum(-2, keepdim=True)
    residual = flat - centre
    pulled = precision @ residual
    left_out = pulled / precision.diagonal(dim1=-2, dim2=-1).clamp_min(TINY)[..., None]
    signed = (w[..., None] * residual.square()).sum(-2)
    plain = residual.square().mean(-2)
    parts = (
        torch.maximum(signed, 0.1 * plain),
        (w[..., None] * left_out).square().sum(-2),
        (residual * pulled).sum(-2).clamp_min(0.0) / max(z.shape[-2] - 1, 1),
        1.0 - left_out.square().sum(-2) / (flat - flat.mean(-2, keepdim=True)).square().sum(-2).clamp_min(TINY),
    )
    return Evidence(*(part if y.ndim > w.ndim else part[..., 0] for part in parts))


def stated_variance(found: Evidence, m: int, dim: int) -> Float[Tensor, "*k"]:
    """The calibrated squared error of the rule's integral against its own reference."""
    weights = torch.tensor(_calibration()["coefficients"], dtype=torch.float64)
    return found.variance / m * torch.exp(found.features(m, dim).to(torch.float64) @ weights)


@cache
def _calibration() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(CALIBRATION.read_text(encoding="utf-8"))
    return table


def _projected_precision(gram: Tensor) -> Tensor:
    """P = K^-1 - K^-1 1 1' K^-1 / 1' K^-1 1: constants cost nothing."""
    inverse = torch.cholesky_inverse(_linalg.jittered_cholesky(gram, JITTER))
    rows = inverse.sum(-1)
    return inverse - rows[..., :, None] * rows[..., None, :] / rows.sum(-1)[..., None, None]
