"""The groundwater runs of the paper: bank, informed latent, both readings of the conditional, queries, trained maps."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip.bandwidths import log_bandwidth, median_bandwidth
from amsip.bench.toys.fitted import DTYPE, NET_SEED
from amsip.kernels import SquaredExponential
from amsip.maps.attention import AttentionMap
from amsip.paper.base import Run
from amsip.paper.trained import trained_map
from amsip.problems.darcy import Darcy
from amsip.problems.darcy_bank import DarcyBank
from amsip.problems.toys import BANDWIDTH_DRAWS, BASE_SEED, EVALUATION_SEED
from amsip.references.base import Embedding
from amsip.references.conditional import Conditional, observation_bandwidth
from amsip.references.embeddings import AtomsEmbedding
from amsip.references.samples import Samples
from amsip.training.config import FitConfig
from amsip.training.tasks import BUDGETS, Task, draw_budget

RANK, FEATURES = 32, 32
SHARP, BROAD = "sharp", "broad"
READINGS: Mapping[str, Callable[[Tensor], Tensor]] = {SHARP: log_bandwidth, BROAD: median_bandwidth}
WIDTH, BATCH = 96, 16
# the paper's run is the sharp one; the other only shows that the margin is not its privilege
STEPS: Mapping[str, int] = {SHARP: 6000, BROAD: 2000}
SHOWN = 3
ENERGIES_AT_ONCE = 16


@dataclass(frozen=True)
class Sizes:
    """How many rows of the bank serve what.

    Example:
        >>> FULL.rows
        20067
    """

    atoms: int
    training: int
    held_out: int

    @property
    def rows(self) -> int:
        """All of them, those of the reconstructions included."""
        return self.atoms + self.held_out + SHOWN


FULL, QUICK = Sizes(20000, 512, 64), Sizes(900, 64, 4)


@dataclass(frozen=True, eq=False)
class Groundwater:
    """A simulated bank, seen through the latent in which the paper integrates.

    The first rows are the atoms, and among them the training queries, each without its own atom; then come the
    held-out queries, then those that are reconstructed.

    Arguments:
        problem: The physics.
        coefficients: The fields of the bank.
        readings: Their noisy readings.
        sizes: Which rows serve what.

    Example:
        >>> from amsip.problems.karhunen import KarhunenPrior
        >>> small = Darcy(KarhunenPrior(coefficients=40), grid=11, sensors=4)
        >>> xi = small.prior.sample(60, generator=torch.Generator().manual_seed(0))
        >>> ground = Groundwater(small, xi, small.observe(xi), Sizes(50, 5, 7))
        >>> ground.posterior(SHARP).batch_shape, ground.latent.shape
        (torch.Size([7]), torch.Size([60, 32]))
    """

    problem: Darcy
    coefficients: Float[Tensor, "n k"]
    readings: Float[Tensor, "n p"]
    sizes: Sizes

    @cached_property
    def scale(self) -> tuple[Float[Tensor, "r"], Float[Tensor, "r"]]:
        """Mean and deviation of the atoms in the leading coefficients."""
        leading = self.coefficients[: self.sizes.atoms, :RANK].double()
        return leading.mean(0), leading.std(0)

    @cached_property
    def latent(self) -> Float[Tensor, "n r"]:
        """The coefficients of largest variance, standardised."""
        mean, deviation = self.scale
        return (self.coefficients[:, :RANK].double() - mean) / deviation

    @cached_property
    def components(self) -> tuple[Float[Tensor, "p"], Float[Tensor, "p p"], Float[Tensor, "p"]]:
        """Mean of the readings, their principal directions as columns, and the variances along these, falling."""
        readings = self.readings[: self.sizes.atoms].double()
        variances, directions = torch.linalg.eigh(torch.cov(readings.T))
        return readings.mean(0), directions.flip(1), variances.flip(0)

    @cached_property
    def features(self) -> Float[Tensor, "n f"]:
        """The leading principal scores of the readings, unwhitened: what responsibilities are computed from."""
        return self.scores(FEATURES)

    @cached_property
    def kernel(self) -> SquaredExponential:
        """The paper's kernel: the log rule on 4000 atoms of the bank."""
        return SquaredExponential(float(log_bandwidth(self.latent[:BANDWIDTH_DRAWS])))

    @property
    def queries(self) -> slice:
        """The rows of the held-out queries."""
        return slice(self.sizes.atoms, self.sizes.atoms + self.sizes.held_out)

    @property
    def shown(self) -> slice:
        """The rows of the reconstructions."""
        return slice(self.queries.stop, self.queries.stop + SHOWN)

    def scores(self, count: int) -> Float[Tensor, "n count"]:
        """The leading principal scores of all readings."""
        mean, directions, _ = self.components
        return (self.readings.double() - mean) @ directions[:, :count]

    def conditional(self, reading: str, points: Float[Tensor, "n _"] | None = None) -> Conditional:
        """The Nadaraya-Watson conditional under one reading of "half the median heuristic".

        Arguments:
            reading: `SHARP` or `BROAD`.
            points: What is conditioned, one row a field; the latent when not given.
        """
        atoms = self.sizes.atoms
        bandwidth = observation_bandwidth(self.features[:atoms], rule=READINGS[reading])
        points = self.latent if points is None else points
        return Conditional(points[:atoms], self.features[:atoms], bandwidth=bandwidth)

    def posterior(self, reading: str, rows: slice | None = None) -> Samples:
        """The conditional at the held-out queries, or at other rows beyond the atoms."""
        return self.conditional(reading).given(self.features[rows or self.queries])

    def field(self, latent: Float[Tensor, "*q r"]) -> Float[Tensor, "*q n n"]:
        """The log-permeability of latent points, the other coefficients at their prior mean."""
        mean, deviation = self.scale
        return self.problem.permeability(latent * deviation + mean)


@dataclass(frozen=True, eq=False)
class QueryTasks:
    """Sixteen held-in queries a step, one seed set each, drawn with replacement as the paper's are.

    Arguments:
        posterior: The conditional at every training query.
        kernel: The kernel.
        energy: The self-affinity of each, worked out once: it takes ten times as long as the rest of a step.
        batch: Queries a step.
    """

    posterior: Samples
    kernel: SquaredExponential
    energy: Float[Tensor, "q"]
    batch: int = BATCH

    @classmethod
    def of(cls, ground: Groundwater, reading: str) -> "QueryTasks":
        """The training queries of a bank."""
        rows = torch.arange(ground.sizes.training)
        posterior = ground.conditional(reading).given(ground.features[rows], exclude=rows)
        parts = [embedding_at(posterior, ground.kernel, part).energy for part in rows.split(ENERGIES_AT_ONCE)]
        return cls(posterior, ground.kernel, torch.cat(parts))

    def __call__(self, generator: torch.Generator) -> Task:
        m = draw_budget(BUDGETS, generator)
        rows = torch.randint(len(self.energy), (self.batch,), generator=generator)
        atoms, weights = self.posterior.atoms[rows], self.posterior.normalised_weights[rows]
        mean, cov = self.posterior.moments()
        embedding = AtomsEmbedding(self.kernel, (mean[rows], cov[rows]), atoms, weights)
        vars(embedding)["energy"] = self.energy[rows]
        drawn = torch.multinomial(weights, m, replacement=True, generator=generator)
        return Task(atoms.take_along_dim(drawn[..., None], -2), embedding)


def groundwater(run: Run) -> Groundwater:
    """The bank of a run, simulated where it is missing."""
    sizes = QUICK if run.quick else FULL
    bank = DarcyBank(run.folder / "darcy-bank", sizes.rows)
    bank.simulate(report=run.report, workers=1 if run.quick else None)
    return Groundwater(bank.problem, *bank.read(), sizes)


def groundwater_map(run: Run, ground: Groundwater, reading: str) -> nn.Module:
    """The paper's network, fitted to the training queries under one reading: in float32, but for its weight solves."""
    tasks = _Later(lambda: QueryTasks.of(ground, reading))
    return trained_map(
        run,
        f"darcy-{reading}",
        lambda: AttentionMap(RANK, width=WIDTH, generator=torch.Generator().manual_seed(NET_SEED)),
        tasks,
        fit_config(run, reading),
        rng_seed=BASE_SEED,
    )


def fit_config(run: Run, reading: str) -> FitConfig:
    """How the network of a reading is fitted."""
    if run.quick:
        return FitConfig(steps=60, lr=1e-3, dtype=DTYPE)
    return FitConfig(steps=STEPS[reading], dtype=DTYPE)


def at_queries(posterior: Samples, rows: Tensor) -> Samples:
    """The measure at some of its queries."""
    return Samples(posterior.atoms[rows], posterior.normalised_weights[rows])


def embedding_at(posterior: Samples, kernel: SquaredExponential, rows: Tensor) -> Embedding:
    """The embedding of the measure at some of its queries."""
    return at_queries(posterior, rows).embed(kernel)


def seed_sets(posterior: Samples, m: int, sets: int) -> Float[Tensor, "q sets m r"]:
    """Seeds of every query, drawn by weight with replacement; the same for every arm."""
    generator = torch.Generator().manual_seed(EVALUATION_SEED + 1000 * m)
    return posterior.sample(sets * m, generator=generator).unflatten(-2, (sets, m))


@dataclass(frozen=True, eq=False)
class _Later:
    """Tasks that are prepared when the first one is asked for: not at all when the map is already there."""

    prepare: Callable[[], QueryTasks]
    ready: list[QueryTasks] = dataclasses.field(default_factory=list)

    def __call__(self, generator: torch.Generator) -> Task:
        if not self.ready:
            self.ready.append(self.prepare())
        return self.ready[0](generator)
