"""The arms of the measurement: ours, plain draws, and every rival at each of its settings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float64
from torch import Tensor

from amsip.bandwidths import median_bandwidth
from amsip.bench.posteriors.yardstick import Split
from amsip.bench.rivals import RIVALS
from amsip.bench.rivals.base import Rival
from amsip.bench.timing import milliseconds
from amsip.defaults import default_kernel, whitened_kernel
from amsip.kernels import Kernel, SquaredExponential
from amsip.maps.descent import Descent
from amsip.quadrature import emit, quadrature
from amsip.references.samples import Samples
from amsip.rules import Rule
from amsip.seeds import draw_seeds
from amsip.weights import optimal_weights, uniform_weights

PLAIN, REWEIGHTED, DEFAULT, DESCENT = "plain draws", "reweighted draws", "amsip default", "amsip descent"
OURS = (DEFAULT, DESCENT)
DESCENT_STEPS = 30


@dataclass(frozen=True)
class Outcome:
    """The rules of one arm: one set of nodes, and each way of weighting them.

    Arguments:
        nodes: In the posterior's own coordinates.
        weights: By the name of the setting.
        ms: CPU milliseconds of a call that makes one rule.
    """

    nodes: Float64[Tensor, "r m d"]
    weights: dict[str, Float64[Tensor, "r m"]]
    ms: float


Make = Callable[[Split, int, int, torch.Generator], Outcome]
Emit = Callable[[Samples, int, torch.Generator], Rule]


@dataclass(frozen=True)
class Arm:
    """One arm: a method at one kernel.

    Arguments:
        method: As the tables print it.
        kernel: "default", "median" (one Gaussian at the median heuristic), or "" where none is taken.
        make: From a split, m, the number of seed sets and a generator to its rules.
        missing: Why it cannot run here, or None.
        sized: Whether it works at this m in this dimension.
    """

    method: str
    kernel: str
    make: Make = field(repr=False)
    missing: Callable[[], str | None] = field(default=lambda: None, repr=False)
    sized: Callable[[int, int], bool] = field(default=lambda m, dim: True, repr=False)

    @property
    def slug(self) -> str:
        """A file name."""
        words = f"{self.method} {self.kernel}".replace(",", "").replace("+", "p").split()
        return "-".join(words)


def all_arms() -> Iterator[Arm]:
    """Every arm, the cheap ones first."""
    yield Arm(PLAIN, "", _plain)
    yield Arm(REWEIGHTED, "default", partial(_ours, reweighted_rule))
    yield Arm(DEFAULT, "default", partial(_ours, default_rule))
    yield Arm(DESCENT, "default", partial(_ours, descended_rule))
    for rival in RIVALS:
        for kernel in ("default", "median") if rival.takes_kernel else ("",):
            yield Arm(rival.name, kernel, partial(_rival, rival, kernel), rival.missing, rival.sized)


def _plain(split: Split, m: int, sets: int, generator: torch.Generator) -> Outcome:
    nodes = draw_seeds(_repeated(split, sets), m, generator=generator)
    ms = milliseconds(lambda: uniform_weights(draw_seeds(Samples(split.pool), m, generator=generator)))
    return Outcome(nodes, {"equal": uniform_weights(nodes)}, ms)


def _ours(make: Emit, split: Split, m: int, sets: int, generator: torch.Generator) -> Outcome:
    rule = make(_repeated(split, sets), m, generator)
    single = Samples(split.pool)
    return Outcome(rule.nodes, {"optimal": rule.weights}, milliseconds(lambda: make(single, m, generator)))


def reweighted_rule(reference: Samples, m: int, generator: torch.Generator) -> Rule:
    """Seeds as they are, weights optimal under the default kernel."""
    return emit(reference, draw_seeds(reference, m, generator=generator), default_kernel(reference), None)


def default_rule(reference: Samples, m: int, generator: torch.Generator) -> Rule:
    """What a user who says nothing gets."""
    return quadrature(reference, m, generator=generator)


def descended_rule(reference: Samples, m: int, generator: torch.Generator) -> Rule:
    """The default kernel, each query refined by itself."""
    return quadrature(reference, m, node_map=Descent(steps=DESCENT_STEPS), generator=generator)


def _repeated(split: Split, sets: int) -> Samples:
    return Samples(split.pool.expand(sets, *split.pool.shape))


def _rival(rival: Rival, kernel: str, split: Split, m: int, sets: int, generator: torch.Generator) -> Outcome:
    """In whitened coordinates; own weights, and the optimal ones under our kernel at the same nodes."""
    white, ours = split.white, whitened_kernel(split.white.shape[-1])
    given = ours if kernel == "default" else median_kernel(white)
    rules = rival.repeat(white, given, m, sets, generator)
    own = uniform_weights(rules.nodes) if rules.weights is None else rules.weights
    nodes = split.integrands.chart.inverse(rules.nodes)
    if rival.own_weights_only:
        return Outcome(nodes, {"own": own}, rules.ms or 0.0)
    optimal = optimal_weights(rules.nodes, Samples(white).embed(ours))
    return Outcome(nodes, {"own": own, "optimal": optimal}, rules.ms or 0.0)


def median_kernel(pool: Float64[Tensor, "n d"]) -> Kernel:
    """What most of these methods advise: one Gaussian, its bandwidth the median distance."""
    return SquaredExponential(float(median_bandwidth(pool)))
