"""One cell of the measurement: a method, a posterior, a number of nodes; what its nodes are worth and cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import torch
from jaxtyping import Float64
from torch import Tensor

from amsip.bench.posteriors.data import TASKS, load_posterior
from amsip.bench.posteriors.integrands import Integrands, Worth, multipliers
from amsip.bench.timing import milliseconds
from amsip.references.samples import Samples

POOL = 4000
SEED_SETS = 24

Method = Callable[
    [Float64[Tensor, "n d"], Float64[Tensor, "r m d"], torch.Generator],
    tuple[Float64[Tensor, "r m d"], Float64[Tensor, "r m"]],
]


@dataclass(frozen=True)
class Split:
    """A posterior in two parts: the pool that methods see, and draws that none of them sees.

    Arguments:
        pool: The draws a rule is made from.
        held_out: The others.
        integrands: The families, whitened by the pool.
        truth: Per reference, the mean of every integrand over it.
        variance: Per reference, the variances.
    """

    pool: Float64[Tensor, "n d"] = field(repr=False)
    held_out: Float64[Tensor, "k d"] = field(repr=False)
    integrands: Integrands = field(repr=False)
    truth: dict[str, Tensor] = field(repr=False)
    variance: dict[str, Tensor] = field(repr=False)

    @cached_property
    def white(self) -> Float64[Tensor, "n d"]:
        """The pool with zero mean and identity covariance."""
        return self.integrands.chart.forward(self.pool)

    @classmethod
    def of_draws(cls, draws: Float64[Tensor, "n d"], pool_size: int) -> "Split":
        """The same random split in every run."""
        order = torch.randperm(draws.shape[0], generator=torch.Generator().manual_seed(1))
        pool, held_out = draws[order[:pool_size]], draws[order[pool_size:]]
        integrands = Integrands.of_pool(pool)
        values = {"pool": integrands(pool), "held-out": integrands(held_out)}
        truth = {name: v.mean(0) for name, v in values.items()}
        return cls(pool, held_out, integrands, truth, {name: v.var(0, correction=0) for name, v in values.items()})


@dataclass(frozen=True)
class Score:
    """What a method is worth on one posterior at one M.

    Arguments:
        pool: Against the average over the pool, which the rule integrates.
        held_out: Against draws the rule did not see, so that the pool's own noise counts too.
        ms: CPU milliseconds of one call that makes one rule.
    """

    pool: Worth
    held_out: Worth
    ms: float = math.nan


@lru_cache(maxsize=4)
def split_posterior(task: str, observation: int) -> Split:
    """The pool of 4,000 of the reference draws, and the other 6,000."""
    return Split.of_draws(load_posterior(task, observation), POOL)


def seed_sets(split: Split, m: int, count: int, rng_seed: int) -> Float64[Tensor, "r m d"]:
    """Independent sets of m distinct draws of the pool; every method starts from the same."""
    pool = Samples(split.pool.expand(count, *split.pool.shape))
    return pool.subset(m, generator=torch.Generator().manual_seed(rng_seed))


def score_method(method: Method, task: str, observation: int, m: int, sets: int = SEED_SETS) -> Score:
    """What the nodes of a method are worth on one posterior.

    Arguments:
        method: Takes the pool `(n, d)`, seeds drawn from it `(r, m, d)` and a generator to nodes `(r, m, d)` and
            weights `(r, m)`: all seed sets in one call.
        task: One of `TASKS`.
        observation: 1 to 10.
        m: The number of nodes.
        sets: How many seed sets; at least 24 for a number to be quoted.
    """
    split = split_posterior(task, observation)
    rng_seed = cell_seed(task, observation, m)
    seeds = seed_sets(split, m, sets, rng_seed)
    generator = torch.Generator().manual_seed(rng_seed)
    with torch.no_grad():
        score = score_rules(split, *method(split.pool, seeds, generator))
        return replace(score, ms=milliseconds(lambda: method(split.pool, seeds[:1], generator)))


def cell_seed(task: str, observation: int, m: int) -> int:
    """Every arm draws from the same generator."""
    return 10_000 * TASKS.index(task) + 1_000 * observation + m


def score_rules(split: Split, nodes: Float64[Tensor, "r m d"], weights: Float64[Tensor, "r m"]) -> Score:
    """What rules that exist are worth."""
    estimates = (weights[..., None] * split.integrands(nodes)).sum(-2)
    families, m, n = split.integrands.families, nodes.shape[-2], split.pool.shape[-2]
    pool, held_out = (
        multipliers(estimates, split.truth[name], split.variance[name], families, m, n) for name in ("pool", "held-out")
    )
    return Score(pool, held_out)
