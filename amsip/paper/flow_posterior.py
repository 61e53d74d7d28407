"""The posteriors a trained flow draws: observations, banks, the latent they are integrated in, and their charts."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from safetensors.torch import load, save
from torch import Tensor

from amsip._disk import write_atomically
from amsip.kernels import SquaredExponential
from amsip.paper.base import Run
from amsip.pretrained import load_card
from amsip.problems.flow_tomography import NAME, TEST_SEED, TRAINING_SEED, FlowTomography, flow_tomography
from amsip.problems.toys import BASE_SEED
from amsip.references.samples import Samples
from amsip.whitening import Whitening

RANK, RELATIVE_JITTER = 32, 1e-6
KERNEL = SquaredExponential(math.sqrt(RANK))
SEEDS = (0, 1, 2)
SHOWN = 3
BANK_SEED = BASE_SEED + 130_000


@dataclass(frozen=True)
class Sizes:
    """How many observations serve what, and how many draws each has.

    Arguments:
        training: Observations the maps are fitted to.
        draws: Of each of these; the first half gives the kernel mean.
        held_out: Observations of the evaluation.
        bank: Draws of each of these that are integrated; as many again check that.
        batch: Observations a step.
    """

    training: int
    draws: int
    held_out: int
    bank: int
    batch: int


FULL, QUICK = Sizes(256, 512, 64, 1024, 32), Sizes(12, 96, 6, 192, 6)


@dataclass(frozen=True, eq=False)
class Observed:
    """Some observations, what they are of, and what the flow draws given them.

    Arguments:
        truth: The phantoms.
        image: The observations as a map reads them.
        encodings: The observations as the flow reads them.
        coefficients: Draws of the flow, some for each observation.
        rejected: The share of them that was not finite or too large, and replaced.
    """

    truth: Float[Tensor, "q pixels"]
    image: Float[Tensor, "q 1 s s"]
    encodings: Float[Tensor, "q pixels"]
    coefficients: Float[Tensor, "q draws k"]
    rejected: Float[Tensor, "q"]


@dataclass(frozen=True, eq=False)
class Latent:
    """The leading principal directions of all draws together: where the quadrature works.

    Arguments:
        mean: The mean of the pooled draws.
        basis: The directions, as columns.
        retained: The share of the pooled variance of whole images that lies along them.

    Example:
        >>> latent = Latent(torch.ones(3), torch.eye(3)[:, :2], torch.tensor(0.9))
        >>> latent.coefficients(latent.points(torch.tensor([[2.0, 5.0, 7.0]])))
        tensor([[2., 5., 1.]], dtype=torch.float64)
    """

    mean: Float[Tensor, "k"]
    basis: Float[Tensor, "k r"]
    retained: Float[Tensor, ""]

    def points(self, coefficients: Float[Tensor, "*q k"]) -> Float[Tensor, "*q r"]:
        """Coefficients of images as points of the latent."""
        return (coefficients.double() - self.mean.double()) @ self.basis.double()

    def coefficients(self, points: Float[Tensor, "*q r"]) -> Float[Tensor, "*q k"]:
        """Points of the latent as coefficients of images, the other directions at the pooled mean."""
        return points @ self.basis.double().mT + self.mean.double()


@lru_cache(maxsize=1)
def trained_flow() -> FlowTomography:
    """The shipped flow."""
    return flow_tomography()


def stem() -> str:
    """What the files that depend on the shipped flow are called: its digest is part of the name."""
    return f"flow-{load_card(NAME).sha256[:8]}"


def sizes_of(run: Run) -> Sizes:
    """Full or quick."""
    return QUICK if run.quick else FULL


def observed(rng_seed: int, rows: slice, draws: int, bank_seed: int) -> Observed:
    """Simulated observations and draws of the flow given each.

    Arguments:
        rng_seed: Of the simulation.
        rows: Which of the simulated pairs.
        draws: How many a observation.
        bank_seed: Of the draws.
    """
    trained = trained_flow()
    truth, encodings = trained.problem.pairs(rows.stop, generator=torch.Generator().manual_seed(rng_seed))
    truth, encodings = truth[rows], encodings[rows]
    generator = torch.Generator().manual_seed(bank_seed)
    posterior = trained.posterior(encodings, bank=draws, generator=generator)
    return Observed(truth, trained.observation(encodings), encodings, posterior.bank.atoms, posterior.rejected)


def evaluation(run: Run) -> Observed:
    """The observations of the evaluation, then those that are reconstructed, with two banks of draws each."""
    sizes = sizes_of(run)
    return observed(TEST_SEED, slice(0, sizes.held_out + SHOWN), 2 * sizes.bank, BANK_SEED + 1000)


def training(run: Run, seed: int) -> Observed:
    """The observations the maps are fitted to, the first the flow was fitted to, with draws of their own a seed."""
    sizes = sizes_of(run)
    return observed(TRAINING_SEED, slice(0, sizes.training), sizes.draws, BANK_SEED + seed)


def latent(run: Run) -> Latent:
    """The directions of the first seed's draws, kept on disk; one latent for all seeds, so that scores compare."""
    path = run.folder / "maps" / f"{stem()}-latent.safetensors"
    if not path.exists():
        found = principal(training(run, SEEDS[0]).coefficients, trained_flow().complement_variance().sum())
        content = {"mean": found.mean, "basis": found.basis.contiguous(), "retained": found.retained}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(content))
    return Latent(**load(path.read_bytes()))


def principal(coefficients: Float[Tensor, "q n k"], outside: Float[Tensor, ""], rank: int = RANK) -> Latent:
    """The latent of pooled draws, `outside` being the variance of their images beyond the coefficients.

    Example:
        >>> draws = torch.tensor([3.0, 2.0, 1.0]) * torch.randn(4, 500, 3, generator=torch.Generator().manual_seed(0))
        >>> principal(draws, torch.tensor(0.0), 1).basis.abs().round().flatten()
        tensor([1., 0., 0.], dtype=torch.float64)
    """
    pooled = coefficients.flatten(0, 1).double()
    variance, directions = torch.linalg.eigh(torch.cov(pooled.mT))
    retained = variance[-rank:].sum() / (variance.sum() + outside.double())
    return Latent(pooled.mean(0), directions[:, -rank:].flip(1), retained)


def chart_of(points: Float[Tensor, "q n r"]) -> Whitening:
    """The chart of each observation: the Cholesky root of the covariance of its own draws, slightly lifted.

    Example:
        >>> points = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> torch.cov(chart_of(points).forward(points)[0].mT, correction=0).round(decimals=4).diagonal()
        tensor([1., 1., 1.], dtype=torch.float64)
    """
    mean, cov = Samples(points).moments()
    lift = RELATIVE_JITTER * cov.diagonal(dim1=-2, dim2=-1).mean(-1)
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype)
    root = torch.linalg.cholesky(cov + lift[..., None, None] * eye)
    return Whitening(mean, root, torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False))
