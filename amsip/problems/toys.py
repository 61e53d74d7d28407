"""The paper's toys: targets with an exact embedding, at the bandwidths of its table.

Every constant and seed is here. The bandwidths are not typed in: each follows from 4000 draws by `log_bandwidth`,
and agrees with the paper's table to four digits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.bandwidths import dimension_bandwidth, log_bandwidth
from amsip.kernels import SquaredExponential
from amsip.problems.linear import LinearGaussian
from amsip.problems.tomography import tomography
from amsip.references.base import Reference
from amsip.references.gaussian import Gaussian
from amsip.references.mixture import Mixture
from amsip.references.samples import Samples
from amsip.whitening import Whitening

BASE_SEED = 20260612
BANDWIDTH_SEED = BASE_SEED + 1234
EVALUATION_SEED = BASE_SEED + 50000
BANDWIDTH_DRAWS = 4000
BANANA_BANK = 20000
BANANA_TRAINING_BANK = 4000

Draw = Callable[[int, torch.Generator], Float[Tensor, "n d"]]


@dataclass(frozen=True, eq=False)
class Toy:
    """A target of the paper: its exact reference, its draws in the paper's order, its kernel.

    Arguments:
        name: Short and unique.
        target: The reference, exact.
        draw: Independent draws, consuming the generator as the paper's runs do.
        printed: The bandwidth in the paper's table, where it has one.
        fixed_bandwidth: A bandwidth given by a rule that needs no draws.

    Example:
        >>> toy = gaussian_toy(2)
        >>> round(toy.bandwidth, 4), toy.whitened().bandwidth == 2**0.5
        (0.1648, True)
    """

    name: str
    target: Reference
    draw: Draw
    printed: float | None = None
    fixed_bandwidth: float | None = None

    @property
    def dim(self) -> int:
        """The number of coordinates d."""
        return self.target.dim

    def reference(self) -> Reference:
        """The measure every rule is scored against."""
        return self.target

    @cached_property
    def bandwidth(self) -> float:
        """The paper's bandwidth: `log_bandwidth` on 4000 draws at the paper's seed, or the fixed one."""
        if self.fixed_bandwidth is not None:
            return self.fixed_bandwidth
        return float(log_bandwidth(self.draws(BANDWIDTH_DRAWS, BANDWIDTH_SEED)))

    @property
    def kernel(self) -> SquaredExponential:
        """The squared-exponential kernel at `bandwidth`."""
        return SquaredExponential(self.bandwidth)

    def draws(self, n: int, rng_seed: int) -> Float[Tensor, "n d"]:
        """n independent draws from a generator seeded afresh."""
        return self.draw(n, torch.Generator().manual_seed(rng_seed))

    def seed_sets(self, m: int, sets: int) -> Float[Tensor, "sets m d"]:
        """The seed sets on which budget m is evaluated, the same for every method."""
        return self.draws(sets * m, EVALUATION_SEED + 1000 * m).reshape(sets, m, self.dim)

    def whitened(self) -> "Toy":
        """The same target in the chart of its mean and covariance, with the bandwidth sqrt(d)."""
        chart = Whitening.of_moments(*self.target.moments())

        def draw(n: int, generator: torch.Generator) -> Tensor:
            return chart.forward(self.draw(n, generator))

        return Toy(
            f"{self.name}-whitened", self.target.whiten(chart), draw, fixed_bandwidth=dimension_bandwidth(self.dim)
        )


def gaussian_toy(dim: int) -> Toy:
    r"""The linear-Gaussian posterior of the paper in 2, 4, 8 or 16 dimensions, centred.

    That of `gaussian_problem`. The mean is dropped: the discrepancy does not see it.

    Example:
        >>> [round(v, 6) for v in gaussian_toy(2).reference().cov[0].tolist()]
        [0.141846, -0.035303]
    """
    cov = gaussian_problem(dim).posterior_cov
    return _centred_gaussian(f"gaussian-{dim}", cov, GAUSSIAN_BANDWIDTHS[dim])


def gaussian_problem(dim: int) -> LinearGaussian:
    r"""The linear-Gaussian inverse problem behind `gaussian_toy`.

    In two dimensions the prior is N(0, [[1.5, 0.2], [0.2, 1]]), the forward map [[1, 0.3], [-0.1, 0.9]] and the noise
    diag(0.15, 0.2). Above, the prior is Q diag(1 .. 2) Q' with a random rotation Q, the forward map the identity and
    the noise 0.3.

    Example:
        >>> gaussian_problem(4).posterior(torch.zeros(4, dtype=torch.float64)).mean.abs().max().item()
        0.0
    """
    _checks.one_of("dim", dim, tuple(GAUSSIAN_BANDWIDTHS))
    if dim == 2:
        prior = torch.tensor([[1.5, 0.2], [0.2, 1.0]], dtype=torch.float64)
        forward = torch.tensor([[1.0, 0.3], [-0.1, 0.9]], dtype=torch.float64)
        noise = torch.tensor([0.15, 0.20], dtype=torch.float64)
    else:
        generator = torch.Generator().manual_seed(42)
        rotation = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
        prior = (rotation * torch.linspace(1.0, 2.0, dim, dtype=torch.float64)) @ rotation.mT
        forward, noise = torch.eye(dim, dtype=torch.float64), torch.full((dim,), 0.3**2, dtype=torch.float64)
    return LinearGaussian(Gaussian(torch.zeros_like(prior[0]), 0.5 * (prior + prior.mT)), forward, noise)


def mixture_toy(dim: int) -> Toy:
    r"""The mixture of N(0, I/2) and N(8 sqrt(2) e_1, 2 I), equal shares, in 10, 32 or 64 dimensions.

    Example:
        >>> round(mixture_toy(10).reference().moments()[1][0, 0].item(), 6)
        33.25
    """
    _checks.one_of("dim", dim, tuple(MIXTURE_BANDWIDTHS))
    means = torch.zeros(2, dim, dtype=torch.float64)
    means[1, 0] = 8.0 * 2.0**0.5
    covs = torch.tensor([0.5, 2.0], dtype=torch.float64)[:, None, None] * torch.eye(dim, dtype=torch.float64)
    return _mixture(f"mixture-{dim}", means, covs, MIXTURE_BANDWIDTHS[dim])


def five_modes() -> Toy:
    """The five-mode mixture in the plane of the mechanism figure; not in the paper's table.

    Example:
        >>> five_modes().draws(3, rng_seed=0).shape
        torch.Size([3, 2])
    """
    means = 2.0 * torch.tensor([[6.2, -6.0], [-4.0, 5.0], [7.0, 3.0], [-6.5, -4.5], [1.0, 7.0]], dtype=torch.float64)
    covs = torch.tensor(
        [
            [[1.5, 0.1], [0.1, 0.5]],
            [[2.0, -0.6], [-0.6, 0.5]],
            [[0.7, 0.4], [0.4, 1.2]],
            [[1.3, -0.5], [-0.5, 0.9]],
            [[0.6, 0.35], [0.35, 1.6]],
        ],
        dtype=torch.float64,
    )
    return _mixture("five-modes", means, covs, None)


def banana(bank: int = BANANA_BANK) -> Toy:
    r"""The banana: x1 ~ N(0, 9), x2 = t + (x1^2 - 9) / 10 with t ~ N(0, 1), held as a fixed bank of draws.

    The paper trains on the first 4000 rows of the bank and scores with the kernel mean of those rows and the
    self-affinity of all 20000, which adds a constant to every score. Here a reference is one bank throughout.

    Arguments:
        bank: How many rows of the paper's bank are the reference.

    Example:
        >>> banana(4000).reference().atoms.shape
        torch.Size([4000, 2])
    """
    rows = _draw_banana(BANANA_BANK, torch.Generator().manual_seed(BASE_SEED))
    return Toy("banana", Samples(rows[:bank]), _draw_banana, printed=0.8413)


def tomography_latent() -> Toy:
    """The posterior of the seven informed features of the paper's tomography, centred.

    See `amsip.problems.tomography` for the problem. Its observation moves the mean alone, which the
    discrepancy does not see.

    Example:
        >>> round(tomography_latent().reference().cov[0, 0].item(), 4)
        0.0362
    """
    return _centred_gaussian("tomography-7", tomography().latent_cov, 0.3460)


def darcy_latent() -> Toy:
    """Standardised prior coefficients of the groundwater problem, N(0, I_32), on which its bandwidth was taken.

    Example:
        >>> darcy_latent().dim
        32
    """
    return _centred_gaussian("darcy-32", torch.eye(32, dtype=torch.float64), 1.9418)


def paper_toys() -> list[Toy]:
    """The eight toys of the paper's table, in its order.

    Example:
        >>> len(paper_toys())
        8
    """
    return [*map(gaussian_toy, GAUSSIAN_BANDWIDTHS), *map(mixture_toy, MIXTURE_BANDWIDTHS), banana()]


GAUSSIAN_BANDWIDTHS = {2: 0.1648, 4: 0.1840, 8: 0.2735, 16: 0.3962}
MIXTURE_BANDWIDTHS = {10: 2.2148, 32: 3.0738, 64: 3.9294}


def _centred_gaussian(name: str, cov: Tensor, printed: float) -> Toy:
    factor = torch.linalg.cholesky(cov)

    def draw(n: int, generator: torch.Generator) -> Tensor:
        return torch.randn(n, len(cov), generator=generator, dtype=torch.float64) @ factor.mT

    return Toy(name, Gaussian(torch.zeros_like(cov[0]), cov), draw, printed)


def _mixture(name: str, means: Tensor, covs: Tensor, printed: float | None) -> Toy:
    shares = torch.full((len(means),), 1.0 / len(means), dtype=torch.float64)
    target = Mixture(shares, means, covs)

    def draw(n: int, generator: torch.Generator) -> Tensor:
        return target.sample(n, generator=generator)

    return Toy(name, target, draw, printed)


def _draw_banana(n: int, generator: torch.Generator) -> Tensor:
    first = 3.0 * torch.randn(n, generator=generator, dtype=torch.float64)
    second = torch.randn(n, generator=generator, dtype=torch.float64) + 0.1 * (first.square() - 9.0)
    return torch.stack([first, second], -1)
