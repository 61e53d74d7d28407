"""The measurement of the demo: rules against as many plain draws, many times over."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files

import torch
from jaxtyping import Float
from torch import Tensor

import amsip
from amsip.draws import Draws

BUDGETS = (8, 16, 32)
RNG_SEED = 7
RESAMPLES = 400


@dataclass(frozen=True, eq=False)
class Comparison:
    """What R rules and R sets of plain draws of the same size answered, for each quantity.

    Arguments:
        budget: The number of nodes M.
        rule: The first of the rules.
        by_rules: Their answers.
        by_draws: Those of the plain draws.
        milliseconds: What one call of `quadrature` took, in the median.
    """

    budget: int
    rule: amsip.Rule
    by_rules: Float[Tensor, "r k"]
    by_draws: Float[Tensor, "r k"]
    milliseconds: float

    def errors(self, pool: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "k"], Float[Tensor, "k"]]:
        """Root mean square errors against the average over the pool: of the rules, of the draws."""
        return _rms(self.by_rules - pool.mean(0)), _rms(self.by_draws - pool.mean(0))

    def equivalent_draws(self, pool: Float[Tensor, "n k"]) -> Float[Tensor, "k"]:
        """The number of independent draws whose average errs as little as the rule: variance over squared error."""
        return pool.var(0, correction=0) / self.errors(pool)[0].square()

    def equivalent_interval(self, pool: Float[Tensor, "n k"], *, generator: torch.Generator) -> Float[Tensor, "2 k"]:
        """A 90% bootstrap interval of that number, over the repeats."""
        squared = (self.by_rules - pool.mean(0)).square()
        rows = torch.randint(len(squared), (RESAMPLES, len(squared)), generator=generator)
        values = pool.var(0, correction=0) / squared[rows].mean(1)
        return values.quantile(torch.tensor([0.05, 0.95], dtype=values.dtype), dim=0)


def shipped_draws() -> Draws:
    """The draws in the package.

    Example:
        >>> shipped_draws().names[2]
        'log10 L'
    """
    with as_file(files("amsip").joinpath("data", "pumping.npz")) as path:
        return amsip.read_draws(path)


def compare(samples: Float[Tensor, "n d"], model: Callable[[Tensor], Tensor], budget: int, repeats: int) -> Comparison:
    """Rules and plain draws from the same starting points, the model run at both."""
    generator = torch.Generator().manual_seed(RNG_SEED)
    rules, draws, seconds = [], [], []
    for _ in range(repeats):
        state = generator.get_state()
        started = time.perf_counter()
        rules.append(amsip.quadrature(samples, budget, generator=generator))
        seconds.append(time.perf_counter() - started)
        draws.append(amsip.draw_seeds(amsip.Samples(samples), budget, generator=torch.Generator().set_state(state)))
    by_rules = torch.stack([rule.expect(model) for rule in rules])
    by_draws = model(torch.cat(draws)).reshape(repeats, budget, -1).mean(1)
    middle = sorted(seconds)[repeats // 2]
    return Comparison(budget, rules[0], by_rules, by_draws, 1e3 * middle)


def _rms(values: Tensor) -> Tensor:
    return values.square().mean(0).sqrt()
