"""Stein variational gradient descent: the interacting sampler that a quadrature is compared with."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.bandwidths import log_bandwidth
from amsip.discrepancy import mmd2
from amsip.kernels import SquaredExponential
from amsip.references.base import Embedding, Score
from amsip.weights import uniform_weights

BANDWIDTHS: tuple[float | None, ...] = (None, 0.5, 1.0, 2.0)
RATES = (0.05, 0.1, 0.25, 0.5, 1.0)
ITERATIONS = (200, 500, 1000)


@dataclass(frozen=True, eq=False)
class Svgd:
    r"""Moves a cloud of equal weights along the kernel-smoothed score, by plain steps.

    $$x_i \leftarrow x_i + \eta \cdot \frac1m \sum_j
      \big( k(x_j, x_i)\, \nabla \log \rho(x_j) + \nabla_{x_j} k(x_j, x_i) \big)$$

    A map like any other, and a sampler: its cloud carries weights 1/m, so our weights can be put on it and compared.
    The reference is read through its exact score; the embedding is not read.

    Arguments:
        score: grad log rho on `(..., n, d)`.
        bandwidth: h of its own kernel; None for the median rule on the seeds, query by query.
        rate: eta, the step size.
        steps: The number of steps.

    Example:
        >>> from amsip import Gaussian
        >>> posterior = Gaussian(torch.zeros(1), torch.eye(1))
        >>> seeds = torch.full((4, 1), 3.0) + torch.tensor([[0.0], [0.1], [0.2], [0.3]])
        >>> cloud = Svgd(posterior.score, bandwidth=1.0, rate=0.5, steps=200)(seeds)
        >>> abs(cloud.mean().item()) < 0.01
        True
    """

    score: Score
    bandwidth: float | None = None
    rate: float = 0.1
    steps: int = 500

    def __post_init__(self) -> None:
        _checks.positive("rate", self.rate)
        _checks.at_least("steps", self.steps, 0)
        if self.bandwidth is not None:
            _checks.positive("bandwidth", self.bandwidth)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding | None = None) -> Float[Tensor, "*q m d"]:
        """The cloud after all steps."""
        return self.advance(nodes, self.kernel(nodes), self.steps)

    def kernel(self, seeds: Float[Tensor, "*q m d"]) -> SquaredExponential:
        """Its own kernel, which stays what the seeds made it."""
        return SquaredExponential(log_bandwidth(seeds) if self.bandwidth is None else self.bandwidth)

    def advance(
        self, cloud: Float[Tensor, "*q m d"], kernel: SquaredExponential, steps: int
    ) -> Float[Tensor, "*q m d"]:
        """Some steps under a given kernel."""
        with torch.no_grad():
            for _ in range(steps):
                cloud = cloud + self.rate * svgd_direction(cloud, self.score(cloud), kernel)
            return cloud


def svgd_direction(
    cloud: Float[Tensor, "*q m d"], scores: Float[Tensor, "*q m d"], kernel: SquaredExponential
) -> Float[Tensor, "*q m d"]:
    """The update of every point of the cloud, for the scores at its points.

    Example:
        >>> svgd_direction(torch.zeros(1, 1), torch.ones(1, 1), SquaredExponential(1.0)).item()
        1.0
    """
    m = cloud.shape[-2]
    ones = torch.ones_like(cloud[..., 0])
    # the kernel is even in its two arguments' difference: the gradient in the other point is minus that in this one
    return (kernel.gram(cloud) @ scores - kernel.weighted_grad(cloud, cloud, ones)) / m


@dataclass(frozen=True, eq=False)
class TunedSvgd:
    """The best setting of a grid, and how every setting did.

    Arguments:
        svgd: The map with the best setting.
        score: Its mean squared discrepancy on the tuning clouds.
        grid: Per setting (bandwidth, rate, steps) the mean squared discrepancy, best first.

    Example:
        >>> TunedSvgd(Svgd(lambda x: -x), 0.1, ()).score
        0.1
    """

    svgd: Svgd
    score: float
    grid: tuple[tuple[tuple[float | None, float, int], float], ...]


def tune_svgd(
    score: Score,
    seeds: Float[Tensor, "r m d"],
    embedding: Embedding,
    *,
    bandwidths: Iterable[float | None] = BANDWIDTHS,
    rates: Iterable[float] = RATES,
    iterations: Iterable[int] = ITERATIONS,
) -> TunedSvgd:
    """Runs every setting on tuning seeds and keeps the one of least mean discrepancy under equal weights.

    The settings that differ only in the number of steps share one run.

    Arguments:
        score: grad log rho.
        seeds: Several clouds of m points, not those that the result will be judged on.
        embedding: What the clouds are scored against.
        bandwidths: The bandwidths tried, None for the median rule.
        rates: The step sizes tried.
        iterations: The numbers of steps tried.

    Example:
        >>> from amsip import Gaussian
        >>> posterior = Gaussian(torch.zeros(1), torch.eye(1))
        >>> seeds = torch.randn(3, 5, 1, generator=torch.Generator().manual_seed(0))
        >>> embedding = posterior.embed(SquaredExponential(0.5))
        >>> tuned = tune_svgd(posterior.score, seeds, embedding, rates=(0.1, 0.5), iterations=(10, 20))
        >>> len(tuned.grid)
        16
    """
    stops = sorted(set(iterations))
    results: list[tuple[tuple[float | None, float, int], float]] = []
    for bandwidth in bandwidths:
        for rate in rates:
            svgd = Svgd(score, bandwidth, rate)
            cloud, kernel, done = seeds, svgd.kernel(seeds), 0
            for stop in stops:
                cloud, done = svgd.advance(cloud, kernel, stop - done), stop
                mean = mmd2(cloud, uniform_weights(cloud), embedding).mean()
                results.append(((bandwidth, rate, stop), float(mean.nan_to_num(nan=torch.inf))))
    results.sort(key=lambda row: row[1])
    (bandwidth, rate, steps), best = results[0]
    return TunedSvgd(Svgd(score, bandwidth, rate, steps), best, tuple(results))
