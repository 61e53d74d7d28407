"""The tomography latent at two bandwidths, and the paper's network fitted at each."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from amsip.bandwidths import median_bandwidth
from amsip.bench.toys.fitted import BATCH, DTYPE, GAUSSIAN_STEPS, NET_SEED, ToyTasks
from amsip.maps.attention import AttentionMap
from amsip.paper.base import Run
from amsip.paper.trained import QUICK_BATCH, QUICK_STEPS, trained_map
from amsip.problems.linear import LinearGaussian
from amsip.problems.tomography import tomography
from amsip.problems.toys import BANDWIDTH_DRAWS, BANDWIDTH_SEED, Toy, tomography_latent
from amsip.training.config import FitConfig

TABULATED, MEDIAN = "tabulated", "median"


@cache
def problem() -> LinearGaussian:
    """The paper's problem, solved once.

    Example:
        >>> problem() is problem()
        True
    """
    return tomography()


@cache
def latents() -> dict[str, Toy]:
    """The centred latent posterior at the bandwidth of the paper's table, and at the plain median of distances.

    Example:
        >>> {name: round(toy.bandwidth, 3) for name, toy in latents().items()}
        {'tabulated': 0.346, 'median': 1.409}
    """
    toy = tomography_latent()
    plain = float(median_bandwidth(toy.draws(BANDWIDTH_DRAWS, BANDWIDTH_SEED)))
    return {TABULATED: toy, MEDIAN: replace(toy, name="tomography-7-median", fixed_bandwidth=plain)}


def latent_map(run: Run, name: str) -> nn.Module:
    """The paper's network for the latent at one of the two bandwidths; a short fit in a quick run.

    Trained in single precision, which gives the same scores in less than half of the time; the weights of a rule are
    solved in double precision all the same.

    Arguments:
        run: Where maps are kept.
        name: `TABULATED` or `MEDIAN`.
    """
    toy = latents()[name]
    batch, config = BATCH, FitConfig(steps=GAUSSIAN_STEPS, dtype=DTYPE)
    if run.quick:
        batch, config = QUICK_BATCH, FitConfig(steps=QUICK_STEPS, lr=1e-3, dtype=DTYPE)
    return trained_map(
        run,
        toy.name,
        lambda: AttentionMap(toy.dim, generator=torch.Generator().manual_seed(NET_SEED)),
        ToyTasks(toy, toy.reference().embed(toy.kernel), batch=batch),
        config,
    )


def listed(values: Iterable[float]) -> str:
    """Numbers with commas between, to three digits.

    Example:
        >>> listed([0.91234, 12.0])
        '0.912, 12'
    """
    return ", ".join(f"{value:.3g}" for value in values)
