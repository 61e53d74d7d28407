"""The random family that the universal map is trained on: wide, synthetic, and without any benchmark posterior."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from amsip.kernels import Kernel, Octaves, Polynomial, SquaredExponential
from amsip.references.base import Reference
from amsip.references.mixture import Mixture
from amsip.references.samples import Samples
from amsip.training.tasks import Task
from amsip.whitening import Whitening

DIMENSIONS = (1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 10, 12, 14, 16, 20, 24, 32)
BUDGETS = (2, 3, 4, 6, 8, 8, 12, 16, 16, 16, 24, 32, 32, 32, 48, 64, 64, 96, 128)
NODE_QUOTA = 640
QUERIES = (4, 24)
POOL = (200, 700)
LARGE_POOL, LARGE_SHARE, ENTRY_QUOTA = (700, 10_000), 0.05, 250_000
COMPONENTS = 6
USUAL_LENGTH, USUAL_MOMENTS = 1.4, 3.0


@dataclass(frozen=True)
class UniversalTasks:
    """Fresh posteriors, kernels, dimensions and budgets at each step.

    Half of the batches are Gaussian mixtures with exact embeddings, half are pools of 200 to 10,000 draws from bent,
    skewed, heavy-tailed, bounded, low-rank or lattice-like densities. Coordinates are whitened by the posterior, up to
    a random stretch for some batches; kernels are a usual one, random octaves, or one squared exponential.

    Arguments:
        usual_share: How often the kernel is the usual one. It is fixed here and not the package's default, so that
            the shipped weights can be made again whatever the default becomes.
        mixture_share: How often the batch is one of mixtures.

    Example:
        >>> task = UniversalTasks()(torch.Generator().manual_seed(0))
        >>> task.seeds.shape[-1] == task.embedding.dim
        True
    """

    usual_share: float = 0.5
    mixture_share: float = 0.5

    def __call__(self, generator: Generator) -> Task:
        dim, m = _choice(DIMENSIONS, generator), _choice(BUDGETS, generator)
        queries = min(max(NODE_QUOTA // m, QUERIES[0]), QUERIES[1])
        reference = self._reference(queries, dim, m, generator)
        if _uniform(generator) < 0.25:
            reference = reference.whiten(_stretch(dim, generator))
        kernel = self._kernel(dim, generator)
        seeds = (
            reference.subset(m, generator=generator)
            if isinstance(reference, Samples) and m < POOL[0] // 2
            else reference.sample(m, generator=generator)
        )
        return Task(seeds, reference.embed(kernel))

    def _reference(self, queries: int, dim: int, m: int, generator: Generator) -> Reference:
        if _uniform(generator) < self.mixture_share:
            return random_mixture(queries, dim, generator)
        low, high = LARGE_POOL if _uniform(generator) < LARGE_SHARE else POOL
        size = int(math.exp(_between(math.log(low), math.log(high), generator)))
        # large pools for few nodes and queries, so that no step costs many times the others
        size = min(size, ENTRY_QUOTA // m)
        return random_pool(max(1, min(queries, ENTRY_QUOTA // (m * size))), dim, generator, size=size)

    def _kernel(self, dim: int, generator: Generator) -> Kernel:
        draw = _uniform(generator)
        if draw < self.usual_share:
            return usual_kernel(dim)
        root = math.sqrt(dim)
        if draw < 0.5 + 0.5 * self.usual_share:
            return SquaredExponential(root * math.exp(_between(math.log(0.2), math.log(1.5), generator)))
        moments = 10.0 ** _between(-1.0, 1.0, generator) * Polynomial(2, float(dim))
        if draw < 0.75 + 0.25 * self.usual_share:
            return Octaves.matern(root * _between(0.6, 2.0, generator), _between(0.5, 3.5, generator)) + moments
        shares = tuple(torch.rand(5, generator=generator).clamp_min(0.02).tolist())
        return Octaves(root * _between(0.15, 0.5, generator), 5, shares) + moments


def usual_kernel(dim: int) -> Kernel:
    """Octaves with the shares of a Matern kernel of smoothness 5/2, plus a polynomial of degree 2.

    Example:
        >>> len(usual_kernel(3).terms)
        2
    """
    return Octaves.matern(USUAL_LENGTH * math.sqrt(dim)) + USUAL_MOMENTS * Polynomial(2, float(dim))


def random_mixture(queries: int, dim: int, generator: Generator) -> Mixture:
    """Gaussian mixtures of 1 to 6 components, whitened exactly.

    Example:
        >>> random_mixture(3, 2, torch.Generator().manual_seed(0)).moments()[0].abs().max() < 1e-9
        tensor(True)
    """
    count = 1 + int(torch.randint(COMPONENTS, (), generator=generator))
    shares = _normal((queries, count), generator).mul(0.7).exp()
    apart = _between(0.0, 4.0, generator) * torch.rand(queries, 1, 1, generator=generator, dtype=torch.float64)
    means = apart * _normal((queries, count, dim), generator)
    means = means * (0.7 * _normal((queries, 1, dim), generator)).exp()
    mixture = Mixture(shares, means, _random_covariances((queries, count), dim, generator))
    return mixture.whiten(Whitening.of_moments(*mixture.moments()))


def random_pool(queries: int, dim: int, generator: Generator, *, size: int | None = None) -> Samples:
    """Draws of warped densities, whitened by their own moments.

    Example:
        >>> random_pool(3, 2, torch.Generator().manual_seed(0)).batch_shape
        torch.Size([3])
    """
    n = POOL[1] if size is None else size
    x = _base_noise((queries, n, dim), generator)
    for warp in _WARPS:
        if _uniform(generator) < 0.4:
            x = warp(x, generator)
    x = x @ _rotation(queries, dim, generator).mT
    return Samples(Whitening.of_samples(x).forward(x))


def _base_noise(shape: tuple[int, int, int], generator: Generator) -> Tensor:
    """Gaussian, heavy-tailed, bounded, one-sided, or a mixture's draws."""
    kind = int(torch.randint(6, (), generator=generator))
    if kind == 0:
        return _normal(shape, generator)
    if kind == 1:
        freedom = int(torch.randint(3, 9, (), generator=generator))
        return _normal(shape, generator) / _normal((*shape[:2], 1, freedom), generator).square().mean(-1).sqrt()
    if kind == 2:
        return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
    if kind == 3:
        return -torch.log(torch.rand(shape, generator=generator, dtype=torch.float64).clamp_min(1e-12))
    mixture = random_mixture(shape[0], shape[2], generator)
    return mixture.sample(shape[1], generator=generator)


def _bend(x: Tensor, generator: Generator) -> Tensor:
    """One coordinate carries the square of another."""
    curve = _between(-0.8, 0.8, generator) * (x[..., :1].square() - 1.0)
    return torch.cat([x[..., :1], x[..., 1:2] + curve, x[..., 2:]], -1) if x.shape[-1] > 1 else x


def _skew(x: Tensor, generator: Generator) -> Tensor:
    """Coordinates are exponentiated, each by its own rate."""
    rate = 0.1 + 0.6 * torch.rand(x.shape[-1], generator=generator, dtype=torch.float64)
    return torch.expm1(rate * x.clamp(-6.0, 6.0)) / rate


def _clip(x: Tensor, generator: Generator) -> Tensor:
    """A soft wall on one side, as a bounded prior makes."""
    wall = _between(-0.5, 1.0, generator)
    return wall + torch.nn.functional.softplus(8.0 * (x - wall)) / 8.0


def _flatten(x: Tensor, generator: Generator) -> Tensor:
    """Most of the spread in a few directions, the rest independent of them only at a small scale."""
    rank = 1 + int(torch.randint(x.shape[-1], (), generator=generator))
    mixing = _normal((x.shape[-1], rank), generator)
    return x[..., :rank] @ mixing.mT + 0.1 * x


def _lattice(x: Tensor, generator: Generator) -> Tensor:
    """Values rounded to a grid in the first coordinate: duplicates and gaps."""
    step = _between(0.3, 1.0, generator)
    return torch.cat([step * torch.round(x[..., :1] / step), x[..., 1:]], -1) if _uniform(generator) < 0.3 else x


def _ribbon(x: Tensor, generator: Generator) -> Tensor:
    """A thin wave: the last coordinate follows the first, with little freedom of its own."""
    if x.shape[-1] == 1 or _uniform(generator) < 0.5:
        return x
    thickness, pitch = 10.0 ** _between(-2.0, -0.3, generator), _between(0.5, 2.5, generator)
    wave = torch.sin(pitch * x[..., :1]) + thickness * x[..., -1:]
    return torch.cat([x[..., :-1], wave], -1)


_WARPS = (_skew, _clip, _bend, _flatten, _ribbon, _lattice)


def _random_covariances(lead: tuple[int, int], dim: int, generator: Generator) -> Tensor:
    scales = (0.5 * _normal((*lead, 1, 1), generator) + 0.5 * _normal((*lead, 1, dim), generator)).exp()
    root = _normal((*lead, dim, dim), generator) / math.sqrt(dim)
    mixed = _between(0.0, 1.0, generator)
    root = math.sqrt(mixed) * root + math.sqrt(1.0 - mixed) * torch.eye(dim, dtype=torch.float64)
    return scales.mT * (root @ root.mT) * scales + 0.02 * torch.eye(dim, dtype=torch.float64)


def _stretch(dim: int, generator: Generator) -> Whitening:
    """A chart that undoes the whitening: a random scale for each coordinate."""
    scale = (_between(0.1, 1.0, generator) * _normal((dim,), generator)).exp()
    return Whitening(torch.zeros(dim, dtype=torch.float64), torch.diag(1.0 / scale), torch.diag(scale))


def _rotation(queries: int, dim: int, generator: Generator) -> Tensor:
    return torch.linalg.qr(_normal((queries, dim, dim), generator))[0]


def _normal(shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _uniform(generator: Generator) -> float:
    return torch.rand((), generator=generator, dtype=torch.float64).item()


def _between(low: float, high: float, generator: Generator) -> float:
    return low + (high - low) * _uniform(generator)


def _choice(values: tuple[int, ...], generator: Generator) -> int:
    return values[int(torch.randint(len(values), (), generator=generator))]
