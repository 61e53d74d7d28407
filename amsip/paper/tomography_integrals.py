"""Posterior expectations of the tomography with a known value, and the errors that rules make in them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.defaults import default_kernel, universal_map
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.tomography import MEDIAN, TABULATED, latent_map, latents, problem
from amsip.problems.toys import BASE_SEED
from amsip.quadrature import emit
from amsip.weights import optimal_weights, uniform_weights

DIRECTIONS = 10
RISK, TAILS, MILDER, CONTROLS = "exponential", ("beyond 2", "beyond 2.5"), "beyond 1.5", ("distance", "square")
NOTHING = 0.1
SETS, QUICK_SETS = 256, 24
# budgets of plain draws among which the one as accurate as a rule is looked up
DRAW_BUDGETS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
DRAW_SEED = BASE_SEED + 110000
IID, WARM_MEDIAN, DEFAULT_ARM, PLUG_IN = "iid", "warm-median", "default", "plug-in"


@dataclass(frozen=True)
class Integrand:
    """A function of the standardised quantity t = (q - m) / s, with q linear in the image.

    Arguments:
        f: The function.
        truth: Its exact expectation.
        title: What a panel calls it.

    Example:
        >>> round(INTEGRANDS["beyond 2"].truth, 5)
        0.02275
    """

    f: Callable[[Tensor], Tensor]
    truth: float
    title: str


def _beyond(level: float) -> Integrand:
    truth = 0.5 * math.erfc(level / math.sqrt(2.0))
    return Integrand(lambda t: (t > level).to(t), truth, f"P(q > m + {level:g} s)")


INTEGRANDS: Mapping[str, Integrand] = {
    MILDER: _beyond(1.5),
    "beyond 2": _beyond(2.0),
    "beyond 2.5": _beyond(2.5),
    RISK: Integrand(lambda t: torch.exp(1.5 * t), math.exp(1.125), "E exp(1.5 (q - m) / s)"),
    "distance": Integrand(torch.abs, math.sqrt(2.0 / math.pi), "E |q - m| / s"),
    "square": Integrand(torch.square, 1.0, "E (q - m)² / s²"),
}


@cache
def directions() -> dict[str, Float[Tensor, "k r"]]:
    """The direction of the latent that moves the image most, and random ones, scaled by their exact std.

    Example:
        >>> rows = directions()["random"]
        >>> torch.allclose(((rows @ problem().latent_cov) * rows).sum(-1), torch.ones(10, dtype=torch.float64))
        True
    """
    lift, cov = problem().informed.chart.root, problem().latent_cov
    leading = torch.linalg.svd(lift).Vh[:1]
    generator = torch.Generator().manual_seed(BASE_SEED)
    drawn = torch.randn(DIRECTIONS, len(cov), generator=generator, dtype=torch.float64)
    return {
        name: rows / ((rows @ cov) * rows).sum(-1, keepdim=True).sqrt()
        for name, rows in (("leading", leading), ("random", drawn))
    }


def quantities(nodes: Float[Tensor, "s m r"]) -> dict[str, Float[Tensor, "s m k"]]:
    """The standardised quantity at every node, a column a direction.

    Example:
        >>> {name: values.shape for name, values in quantities(torch.zeros(3, 4, 7, dtype=torch.float64)).items()}
        {'leading': torch.Size([3, 4, 1]), 'random': torch.Size([3, 4, 10])}
    """
    return {name: nodes @ rows.mT for name, rows in directions().items()}


def errors(values: Float[Tensor, "s m k"], weights: Float[Tensor, "s m 1"]) -> list[Data]:
    """A row an integrand: the median size of the error with quartiles, its root mean square and bias, and `nothing`,
    the share of estimates below a tenth of the truth.

    Arguments:
        values: The standardised quantity at the nodes.
        weights: The weights, the same for every direction.
    """
    rows = []
    for name, integrand in INTEGRANDS.items():
        estimates = (weights * integrand.f(values)).sum(-2).flatten()
        error = estimates - integrand.truth
        low, median, high = error.abs().quantile(error.new_tensor(arms.QUARTILES)).tolist()
        rows.append(
            {
                "integrand": name,
                "median": median,
                "quartiles": [low, high],
                "rmse": error.square().mean().sqrt(),
                "bias": error.mean(),
                "nothing": (estimates < NOTHING * integrand.truth).double().mean(),
            }
        )
    return rows


def rows_at(run: Run, m: int) -> Data:
    """A row an arm, integrand and kind of direction, at one number of nodes; the plug-in is at the warm rule's mean."""
    run.report(f"integrals, M = {m}")
    rows = []
    for arm, (nodes, weights) in rules(run, m).items():
        for kind, values in quantities(nodes).items():
            rows += [{"arm": arm, "m": m, "directions": kind, **row} for row in errors(values, weights[..., None])]
            if arm == arms.WARM:
                mean = (weights[..., None] * values).sum(-2, keepdim=True)
                ones = torch.ones_like(mean[..., :1])
                rows += [{"arm": PLUG_IN, "m": m, "directions": kind, **row} for row in errors(mean, ones)]
    return {"rows": rows}


def rules(run: Run, m: int) -> dict[str, tuple[Float[Tensor, "s m r"], Float[Tensor, "s m"]]]:
    """Centred rules of every arm from the same seeds."""
    table, median = latents()[TABULATED], latents()[MEDIAN]
    seeds, reference = table.seed_sets(m, QUICK_SETS if run.quick else SETS), table.reference()
    found = {IID: (seeds, uniform_weights(seeds))}
    for arm, toy, node_map in (
        (arms.WARM, table, latent_map(run, TABULATED)),
        (arms.FINETUNED, table, arms.finetune),
        (arms.UNIVERSAL, table, universal_map),
        (WARM_MEDIAN, median, latent_map(run, MEDIAN)),
    ):
        embedding = reference.embed(toy.kernel)
        nodes = arms.moved(node_map, seeds, embedding)
        found[arm] = nodes, optimal_weights(nodes, embedding)
    rule = emit(reference, seeds, default_kernel(reference), universal_map)
    return {**found, DEFAULT_ARM: (rule.nodes, rule.weights)}


def rows_of_draws(run: Run) -> Data:
    """Plain draws at many budgets, along the leading direction."""
    sets = QUICK_SETS if run.quick else 4 * SETS
    values = torch.randn(
        sets, DRAW_BUDGETS[-1], 1, generator=torch.Generator().manual_seed(DRAW_SEED), dtype=torch.float64
    )
    rows = []
    for n in DRAW_BUDGETS:
        part = values[:, :n]
        rows += [{"n": n, **row} for row in errors(part, torch.full_like(part, 1.0 / n))]
    return {"rows": rows}
