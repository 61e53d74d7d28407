"""Refining nodes with the flow's own score, in the coordinates in which the flow has one."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.kernels import SquaredExponential
from amsip.maps.meanshift import MeanShift
from amsip.maps.readings import Reading, SmoothedScore, read_embedding
from amsip.maps.refine import RefineStep, refine
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.flow_cells import Charted
from amsip.paper.flow_posterior import chart_of, trained_flow
from amsip.problems.toys import BASE_SEED
from amsip.references.samples import Samples
from amsip.whitening import Whitening

SEED = BASE_SEED + 150_000
OBSERVATIONS, NODES, STEPS, INNER = 4, 32, 12, 64
QUICK_OBSERVATIONS, QUICK_NODES, QUICK_STEPS, QUICK_INNER = 2, 8, 2, 8
ROWS = 512
BOX = (-100.0, 100.0)
SAMPLES, SCORE = "samples", "score"
# the ridge of the Gram: larger where the kernel mean is a noisy estimate
RIDGES = {SAMPLES: 1e-10, SCORE: 1e-3}


def refinement(run: Run, charted: Charted) -> Data:
    """The damped mean shift from seeds, read through draws and through the flow's score, beside the other arms.

    The score of the flow is that of all its coefficients; the leading directions alone have none in closed form. So
    this is in all of them, whitened, at the same rule for the bandwidth: the square root of their number.

    Arguments:
        run: Quick or not.
        charted: The observations, of which the first few are used.
    """
    few, m, steps, inner = (
        (QUICK_OBSERVATIONS, QUICK_NODES, QUICK_STEPS, QUICK_INNER)
        if run.quick
        else (OBSERVATIONS, NODES, STEPS, INNER)
    )
    coefficients = charted.found.coefficients[:few, : charted.bank.shape[-2]].double()
    chart = chart_of(coefficients)
    bank = Samples(chart.forward(coefficients))
    dim = bank.dim
    embedding = bank.embed(SquaredExponential(math.sqrt(dim)))
    seeds = bank.subset(m, generator=torch.Generator().manual_seed(SEED))
    target = FlowTarget(chart, trained_flow().context(charted.found.encodings[:few]))
    score = SmoothedScore(target.log_prob, target.score, inner, torch.Generator().manual_seed(SEED + 1))
    readings: dict[str, Reading] = {SAMPLES: read_embedding, SCORE: score}
    lines = {}
    for name, reading in readings.items():
        run.report(f"flow, {steps} steps of the mean shift through its {name}")
        trace: list[RefineStep] = []
        shift = MeanShift(steps=steps, bounds=BOX, jitter=RIDGES[name], reading=reading)
        refine(seeds, embedding, shift, callback=trace.append)
        lines[name] = torch.stack([step.mmd2 for step in trace]).median(-1).values
    maps = {arms.FLOOR: None, arms.REWEIGHT: None, arms.FINETUNED: arms.finetune}
    found = arms.compare(seeds, embedding, maps)
    return {
        "observations": few,
        "m": m,
        "inner": inner,
        "dim": dim,
        "lines": lines,
        "arms": {arm: part["scores"].median() for arm, part in found.items()},
        "effective": effective(target, seeds, math.sqrt(dim), inner).mean(),
        "needed": needed(dim),
    }


class FlowTarget:
    """The flow's density and score given some observations, in the whitened coordinates.

    Arguments:
        chart: The coordinates.
        context: What the flow reads of the observations.
    """

    def __init__(self, chart: Whitening, context: Float[Tensor, "q k"]) -> None:
        self.chart, self.context = chart, context

    def log_prob(self, points: Float[Tensor, "q n d"]) -> Float[Tensor, "q n"]:
        """The log density up to the constant of the chart, some rows at a time."""
        flow = trained_flow().flow
        with torch.no_grad():
            parts = [flow.log_prob(self._inside(part), self.context) for part in points.split(ROWS, -2)]
        return torch.cat(parts, -1).double()

    def score(self, points: Float[Tensor, "q n d"]) -> Float[Tensor, "q n d"]:
        """Its gradient in the whitened coordinates, by automatic differentiation of the flow."""
        flow = trained_flow().flow
        parts = [flow.score(self._inside(part), self.context) for part in points.split(ROWS, -2)]
        return self.chart.push_gradient(torch.cat(parts, -2).double())

    def _inside(self, points: Tensor) -> Tensor:
        return self.chart.inverse(points).float()


def effective(target: FlowTarget, nodes: Float[Tensor, "q m d"], bandwidth: float, inner: int) -> Float[Tensor, "q m"]:
    """How many of the points about each node carry the estimate: the effective sample size of their densities."""
    noise = torch.randn(
        *nodes.shape[:-1],
        inner,
        nodes.shape[-1],
        generator=torch.Generator().manual_seed(SEED + 2),
        dtype=nodes.dtype,
    )
    points = (nodes[..., None, :] + bandwidth * noise).flatten(-3, -2)
    shares = torch.softmax(target.log_prob(points).unflatten(-1, (nodes.shape[-2], inner)), -1)
    return 1.0 / shares.square().sum(-1)


def needed(dim: int) -> float:
    r"""The decimal logarithm of how many points the estimate needs, were the posterior a standard Gaussian.

    $$\frac{E\, \rho(\sigma \xi)^2}{(E\, \rho(\sigma \xi))^2}
      = \left( \frac{(1 + \sigma^2)^2}{1 + 2 \sigma^2} \right)^{d/2}, \qquad \sigma^2 = d$$

    about the mean: the second moment of one density over the square of its mean.

    Example:
        >>> round(needed(2), 3)
        0.255
    """
    return 0.5 * dim * math.log10((1.0 + dim) ** 2 / (1.0 + 2.0 * dim))
