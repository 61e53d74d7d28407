"""The cases in which a rule is the wrong tool, each measured."""

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from amsip.bench.posteriors.arms import DEFAULT, REWEIGHTED, Emit, default_rule, reweighted_rule
from amsip.bench.posteriors.data import DIMENSIONS, load_posterior
from amsip.bench.posteriors.integrands import Integrands, multipliers
from amsip.bench.posteriors.summary import Interval
from amsip.bench.posteriors.yardstick import Split, score_rules, split_posterior
from amsip.bench.timing import milliseconds
from amsip.references.samples import Samples
from amsip.rules import Rule
from amsip.wild import WildDraws, calm_chart

METHODS: dict[str, Emit] = {REWEIGHTED: reweighted_rule, DEFAULT: default_rule}
NODES = 32
SETS = 48
TASKS = ("gaussian_mixture", "lotka_volterra", "slcp", "gaussian_linear")
WIDE = (10, 25, 50, 100)
TAME = (2, 8)
BOUNDED = ("oscillating", "smooth tail", "indicator", "non-smooth", "shortfall")
POOLS = (2, 5, 10, 30, 100)
POOL = 10_000


def measure_limits(report: Callable[[str], None]) -> dict[str, list[dict]]:
    """All five cases, on observation 1 or on Gaussians.

    Arguments:
        report: Told what happens, a line at a time.
    """
    measured = {}
    for name, measurement in (("cheap", cheap), ("rough", rough), ("wide", wide), ("wild", wild), ("small", small)):
        measured[name] = measurement()
        report(f"limits: {name} measured")
    return measured


def cheap() -> list[dict]:
    """The cost of one evaluation from which a rule saves time over the draws it is worth, and over the whole pool."""
    rows = []
    for task in TASKS:
        split = split_posterior(task, 1)
        for name, make in METHODS.items():
            rule = _repeated(make, split.pool, NODES)
            worth = score_rules(split, rule.nodes, rule.weights).pool.capped[0]
            reference, generator = Samples(split.pool), torch.Generator().manual_seed(0)
            ms = milliseconds(partial(make, reference, NODES, generator), repeats=9)
            spared = NODES * worth - NODES
            rows.append(
                {
                    "task": task,
                    "d": DIMENSIONS[task],
                    "method": name,
                    "ms": ms,
                    "worth": worth,
                    "even_ms": ms / spared if spared > 0 else math.inf,
                    "even_pool_ms": ms / (len(split.pool) - NODES),
                    "average_ms": milliseconds(partial(_average_of_squares, split.pool), repeats=9),
                }
            )
    return rows


def rough() -> list[dict]:
    """Integrands that jump: what a node is worth on each."""
    rows = []
    for task in TASKS:
        split = split_posterior(task, 1)
        jumps, names = jumping(split)
        values = jumps(split.pool)
        families = {name: slice(i * 8, i * 8 + 8) for i, name in enumerate(names)}
        for name, make in METHODS.items():
            rule = _repeated(make, split.pool, NODES)
            worth = _worth(rule, jumps, values, families)
            rows.append({"task": task, "d": DIMENSIONS[task], "method": name, "worth": worth})
    return rows


def jumping(split: Split) -> tuple[Callable[[Tensor], Tensor], tuple[str, ...]]:
    """Half-spaces of probability 1/2, 1/10 and 1/100, and a square wave, along the eight directions."""
    integrands = split.integrands
    along = split.white @ integrands.directions
    cuts = [along.quantile(level, dim=0) for level in (0.5, 0.9, 0.99)]

    def values(x: Float64[Tensor, "*q n d"]) -> Float64[Tensor, "*q n h"]:
        u = integrands.chart.forward(x) @ integrands.directions
        return torch.cat([*((u > cut).to(x) for cut in cuts), torch.sin(6.0 * u).sign()], -1)

    return values, ("half the mass", "one tenth", "one hundredth", "square wave")


def wide() -> list[dict]:
    """Standard Gaussian pools of many coordinates."""
    rows = []
    for dim in WIDE:
        generator = torch.Generator().manual_seed(dim)
        split = Split.of_draws(torch.randn(POOL, dim, dtype=torch.float64, generator=generator))
        for name, make in METHODS.items():
            rule = _repeated(make, split.pool, NODES)
            score = score_rules(split, rule.nodes, rule.weights)
            rows.append({"d": dim, "method": name, **asdict(score.pool)})
    return rows


def wild() -> list[dict]:
    """Standard Gaussian pools with a few draws blown up, and pools with heavy tails.

    The integrands are whitened by the draws that are not wild; those that grow faster than the tails fall are left out.
    """
    rows = []
    for dim in TAME:
        generator = torch.Generator().manual_seed(dim)
        gaussian = torch.randn(POOL, dim, dtype=torch.float64, generator=generator)
        for name, pool in _wild_pools(gaussian, generator).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WildDraws)
                integrands = Integrands.of_pool(pool, calm_chart(Samples(pool))[0])
                rules = {method: _repeated(make, pool, NODES) for method, make in METHODS.items()}
            values = integrands(pool)
            for method, rule in rules.items():
                worth = _worth(rule, integrands, values, integrands.families)
                rows.append({"d": dim, "pool": name, "method": method, "worth": {f: worth[f] for f in BOUNDED}})
    return rows


def _wild_pools(gaussian: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    one, five = gaussian.clone(), gaussian.clone()
    one[0], five[:5] = 1000.0, 100.0 * gaussian[:5]
    pools = {"one draw at 1000": one, "five draws times 100": five}
    for freedom in (1, 2, 3):
        squares = torch.randn(POOL, freedom, dtype=torch.float64, generator=generator).square().mean(-1, keepdim=True)
        pools[f"Student, {freedom} degrees of freedom"] = gaussian / squares.sqrt()
    return pools


def small() -> list[dict]:
    """Pools with few draws for each node: the rule and the plain average of its whole pool, both against all draws."""
    rows = []
    for task in TASKS:
        draws = load_posterior(task, 1)
        integrands = split_posterior(task, 1).integrands
        values = integrands(draws)
        truth, variance = values.mean(0), values.var(0, correction=0)
        for ratio in POOLS:
            n, generator = ratio * NODES, torch.Generator().manual_seed(ratio)
            pools = Samples(draws.expand(SETS, *draws.shape)).subset(n, generator=generator)
            row = {"task": task, "d": DIMENSIONS[task], "draws": n}
            everything = integrands(pools).mean(-2)
            row["whole pool"] = multipliers(everything, truth, variance, integrands.families, NODES, n).capped
            for name, make in METHODS.items():
                rule = make(Samples(pools), NODES, generator)
                estimates = (rule.weights[..., None] * integrands(rule.nodes)).sum(-2)
                row[name] = multipliers(estimates, truth, variance, integrands.families, NODES, n).capped
            rows.append(row)
    return rows


def _worth(
    rule: Rule, integrands: Callable[[Tensor], Tensor], values: Tensor, families: dict[str, slice]
) -> dict[str, Interval]:
    """What a node is worth on each family of integrands, whose values at all draws of the pool are given."""
    estimates = (rule.weights[..., None] * integrands(rule.nodes)).sum(-2)
    truth, variance = values.mean(0), values.var(0, correction=0)
    return multipliers(estimates, truth, variance, families, NODES, len(values)).raw


def _average_of_squares(pool: Tensor) -> Tensor:
    return pool.square().mean(0)


def _repeated(make: Emit, pool: Tensor, m: int) -> Rule:
    return make(Samples(pool.expand(SETS, *pool.shape)), m, torch.Generator().manual_seed(m))
