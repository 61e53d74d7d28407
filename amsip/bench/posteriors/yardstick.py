"""One cell of the measurement: a method, a posterior, a number of nodes; what its nodes are worth and cost."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from jaxtyping import Float64
from torch import Tensor

from amsip.bench.posteriors.data import TASKS, load_posterior
from amsip.bench.posteriors.integrands import Integrands, Worth, multipliers
from amsip.references.samples import Samples

SEED_SETS = 24


@dataclass(frozen=True)
class Split:
    """A posterior in two parts: the pool that methods see, and draws that none of them sees, where any are left.

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
    def of_draws(cls, draws: Float64[Tensor, "n d"], pool_size: int | None = None) -> "Split":
        """The same random split in every run; without a size all draws are the pool."""
        order = torch.randperm(draws.shape[0], generator=torch.Generator().manual_seed(1))
        pool, held_out = draws[order[:pool_size]], draws[order[pool_size or len(draws) :]]
        integrands = Integrands.of_pool(pool)
        values = {"pool": integrands(pool)} | ({"held-out": integrands(held_out)} if len(held_out) else {})
        truth = {name: v.mean(0) for name, v in values.items()}
        return cls(pool, held_out, integrands, truth, {name: v.var(0, correction=0) for name, v in values.items()})


@dataclass(frozen=True)
class Score:
    """What a method is worth on one posterior at one M.

    Arguments:
        pool: Against the average over the pool, which the rule integrates.
        held_out: Against draws the rule did not see, so that the pool's own noise counts too.
    """

    pool: Worth
    held_out: Worth | None = None


@lru_cache(maxsize=4)
def split_posterior(task: str, observation: int, *, halved: bool = False) -> Split:
    """All reference draws as the pool; or half of them, the others held out."""
    draws = load_posterior(task, observation)
    return Split.of_draws(draws, len(draws) // 2 if halved else None)


def seed_sets(split: Split, m: int, count: int, rng_seed: int) -> Float64[Tensor, "r m d"]:
    """Independent sets of m distinct draws of the pool; every method starts from the same."""
    pool = Samples(split.pool.expand(count, *split.pool.shape))
    return pool.subset(m, generator=torch.Generator().manual_seed(rng_seed))


def cell_seed(task: str, observation: int, m: int) -> int:
    """Every arm draws from the same generator."""
    return 10_000 * TASKS.index(task) + 1_000 * observation + m


def score_rules(split: Split, nodes: Float64[Tensor, "r m d"], weights: Float64[Tensor, "r m"]) -> Score:
    """What rules that exist are worth."""
    estimates = (weights[..., None] * split.integrands(nodes)).sum(-2)
    families, m, n = split.integrands.families, nodes.shape[-2], split.pool.shape[-2]
    worths = [multipliers(estimates, split.truth[k], split.variance[k], families, m, n) for k in split.truth]
    return Score(*worths)
