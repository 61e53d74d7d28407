"""What groundwater rules say about the field: means and spreads over the square, point estimates and their errors."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.paper import arms
from amsip.paper.base import Data
from amsip.paper.groundwater import BROAD, SHARP, Groundwater
from amsip.rules import Rule

COARSE = 8
COMPONENTS = (32, 100)
Z90 = 1.6449


class Fields:
    """The affine map from latent points to fields, and what it makes of means and covariances.

    Arguments:
        ground: The bank whose latent it is.
    """

    def __init__(self, ground: Groundwater) -> None:
        rank = ground.latent.shape[-1]
        points = torch.cat([torch.zeros(1, rank), torch.eye(rank)]).to(ground.latent)
        fields = ground.field(points).flatten(-2)
        self.centre, self.modes = fields[0], fields[1:] - fields[0]

    def mean(self, latent: Float[Tensor, "*q r"]) -> Float[Tensor, "*q pixels"]:
        """The field of a latent mean."""
        return self.centre + latent @ self.modes

    def std(self, cov: Float[Tensor, "*q r r"]) -> Float[Tensor, "*q pixels"]:
        """The deviation of every pixel under a latent covariance."""
        return ((cov @ self.modes) * self.modes).sum(-2).clamp_min(0.0).sqrt()


def agreement(fields: Fields, rule: Rule, exact: tuple[Tensor, Tensor]) -> Data:
    """How far the mean and the spread of rules are from those of the measures they integrate, query by query.

    Arguments:
        fields: To the square.
        rule: A rule a query.
        exact: Mean and covariance of every measure.

    Returns:
        `error`, relative in the norm of the mean field; `ratio`, the mean over pixels of deviation over exact
        deviation; `correlation` of the two maps of deviations.
    """
    mean, true_mean = fields.mean(rule.mean()), fields.mean(exact[0])
    std, true_std = fields.std(rule.cov()), fields.std(exact[1])
    return {
        "error": (mean - true_mean).norm(dim=-1) / true_mean.norm(dim=-1),
        "ratio": (std / true_std).mean(-1),
        "correlation": correlations(std, true_std),
    }


def correlations(first: Float[Tensor, "*q n"], second: Float[Tensor, "*q n"]) -> Float[Tensor, "*q"]:
    """Pearson's along the last axis.

    Example:
        >>> round(correlations(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[5.0, 3.0, 1.0]])).item(), 4)
        -1.0
    """
    a, b = (values - values.mean(-1, keepdim=True) for values in (first, second))
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def estimates(ground: Groundwater) -> dict[str, Float[Tensor, "n r"]]:
    """Latent point estimates at every row beyond the atoms: both conditionals' means and linear regressions."""
    rest = slice(ground.sizes.atoms, ground.sizes.rows)
    found = {reading: ground.posterior(reading, rest).moments()[0] for reading in (SHARP, BROAD)}
    for count in COMPONENTS:
        found[regression_name(count)] = regressed(ground.scores(count), ground.latent, ground.sizes.atoms)
    return found


def regression_name(count: int) -> str:
    """What the regression on some components is called."""
    return f"regression on {count}"


def regressed(inputs: Float[Tensor, "n k"], targets: Float[Tensor, "n r"], fitted: int) -> Float[Tensor, "rest r"]:
    """Least squares with a constant, fitted on the first rows, evaluated on the others.

    Example:
        >>> x = torch.arange(6.0)[:, None]
        >>> regressed(x, 3.0 * x + 1.0, 4).round(decimals=3).flatten().tolist()
        [13.0, 16.0]
    """
    design = torch.nn.functional.pad(inputs, (0, 1), value=1.0)
    return design[fitted:] @ torch.linalg.lstsq(design[:fitted], targets[:fitted]).solution


def explained(predicted: Float[Tensor, "n r"], truth: Float[Tensor, "n r"]) -> float:
    """The share of the sum of squares that a prediction explains; 0 for the prior mean, which is zero here.

    Example:
        >>> explained(torch.tensor([[0.5]]), torch.tensor([[1.0]]))
        0.75
    """
    return float(1.0 - (predicted - truth).square().sum() / truth.square().sum())


def accuracy(ground: Groundwater, fields: Fields, found: Mapping[str, Float[Tensor, "n r"]]) -> Data:
    """Of every point estimate: explained share in the latent and its first coordinates, and the field it gives."""
    truth = ground.latent[ground.sizes.atoms :]
    whole = ground.problem.permeability(ground.coefficients[ground.sizes.atoms :].double()).flatten(-2)
    kept = fields.mean(truth)
    rows = {}
    for name, predicted in found.items():
        field = fields.mean(predicted)
        rows[name] = {
            "r2": explained(predicted, truth),
            "r2_coarse": explained(predicted[:, :COARSE], truth[:, :COARSE]),
            "field_r2": explained(field - fields.centre, whole - fields.centre),
            "correlation": correlations(field, whole).median(),
            "correlation_kept": correlations(field, kept).median(),
            "amplitude": (field.norm(dim=-1) / kept.norm(dim=-1)).median(),
        }
    return {"rows": rows, "kept": explained(kept - fields.centre, whole - fields.centre), "fields": len(truth)}


def coverage(fields: Fields, mean: Tensor, cov: Tensor, truth: Tensor) -> Data:
    """How the true field, its truncated part dropped, lies within a stated mean and deviation.

    Arguments:
        fields: To the square.
        mean: Latent means, one a query.
        cov: Latent covariances.
        truth: The true latent points.

    Returns:
        `inside`, the share of pixels within the central 90%, and `z`, the root mean square of the error in deviations.
    """
    z = (fields.mean(truth) - fields.mean(mean)) / fields.std(cov)
    return {"inside": (z.abs() < Z90).double().mean(), "z": z.square().mean().sqrt()}


def median_over(values: Float[Tensor, "q"]) -> Data:
    """A median over queries with its interval from resampling them."""
    return {"median": arms.middle(values), "interval": list(arms.ratio_interval(values, torch.ones_like(values)))}
