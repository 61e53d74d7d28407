"""Refinements from an emission and from the prior, on posteriors whose score is exact."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip.discrepancy import mmd2
from amsip.kernels import SquaredExponential
from amsip.maps.descent import Descent
from amsip.maps.meanshift import MeanShift
from amsip.maps.readings import SmoothedScore
from amsip.maps.refine import RefineStep, refine
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.tomography import MEDIAN, TABULATED, latent_map, latents, problem
from amsip.paper.trained import toy_map
from amsip.problems.linear import LinearGaussian
from amsip.problems.toys import BASE_SEED, Toy, gaussian_problem, gaussian_toy
from amsip.references.conditional import Conditional
from amsip.references.gaussian import Gaussian
from amsip.references.samples import Samples
from amsip.seeds import draw_seeds
from amsip.weights import optimal_weights, uniform_weights

NODES, DAMPING, BOX = 32, 0.5, (-100.0, 100.0)
OBSERVATIONS, STEPS, INNER, DATASET = 32, 60, 256, 8192
QUICK_OBSERVATIONS, QUICK_STEPS, QUICK_INNER, QUICK_DATASET = 6, 6, 32, 1024
FLOOR_SETS = 256
SEED = BASE_SEED + 120000
# the ridge of the Gram: as elsewhere for the exact kernel mean, larger for its noisy estimate
RIDGES = {"closed form": 1e-10, "score": 1e-3}
GAUSSIAN, TABLE, PLAIN = "gaussian-2", "tomography-7", "tomography-7-median"
EXACT_SEEDS, DATASET_SEEDS = "exact", "dataset"


@dataclass(frozen=True, eq=False)
class Case:
    """A batch of observations, their exact posteriors, and the map that emits from seeds.

    Arguments:
        toy: The centred posterior and its kernel.
        net: The map fitted to it.
        posterior: The posterior of each observation.
        prior: Draws of the prior from a count and a generator, in the same coordinates.
        conditional: The posteriors as a simulated dataset of some size knows them.
    """

    toy: Toy
    net: nn.Module
    posterior: Gaussian
    prior: Callable[[int, torch.Generator], Float[Tensor, "n d"]]
    conditional: Callable[[int], Samples]


def build(run: Run, name: str) -> Case:
    """A case by its name: the Gaussian in the plane, or the tomography at one of two bandwidths."""
    count, generator = QUICK_OBSERVATIONS if run.quick else OBSERVATIONS, torch.Generator().manual_seed(SEED)
    if name == GAUSSIAN:
        plane = gaussian_problem(2)
        _, observed = plane.simulate(count, generator=generator)

        def from_plane(n: int, generator: torch.Generator) -> Tensor:
            return plane.prior.sample(n, generator=generator)

        conditional = partial(_conditional, plane, observed, False)
        return Case(gaussian_toy(2), toy_map(run, name), plane.posterior(observed), from_plane, conditional)
    setting = TABULATED if name == TABLE else MEDIAN
    toy = latents()[setting]
    _, observed = problem().simulate(count, generator=generator)

    def from_features(n: int, generator: torch.Generator) -> Tensor:
        return torch.randn(n, toy.dim, generator=generator, dtype=torch.float64)

    posterior = problem().latent_posterior(observed)
    conditional = partial(_conditional, problem(), observed, True)
    return Case(toy, latent_map(run, setting), posterior, from_features, conditional)


def frontier(run: Run, name: str, seeds: str) -> Data:
    """Traces of warm and cold refinements of one case, read in closed form and through the score.

    Arguments:
        run: Its cache and whether it is quick.
        name: The case.
        seeds: `EXACT_SEEDS`, draws of the posterior, or `DATASET_SEEDS`, draws of what a dataset says it is.
    """
    run.report(f"refining {name} from {seeds} seeds")
    case = build(run, name)
    generator = torch.Generator().manual_seed(SEED + 1)
    queries, centre = len(case.posterior.mean), case.posterior.mean[:, None, :]
    embedding = case.posterior.embed(case.toy.kernel)
    emitter = embedding
    if seeds == EXACT_SEEDS:
        start = centre + case.toy.draw(queries * NODES, generator).reshape(queries, NODES, -1)
    else:
        known = case.conditional(QUICK_DATASET if run.quick else DATASET)
        start, centre = draw_seeds(known, NODES, generator=generator), known.moments()[0][:, None, :]
        emitter = known.embed(case.toy.kernel)
    with torch.no_grad():
        warm = centre + case.net(start - centre)
    cold = case.prior(queries * NODES, generator).reshape(queries, NODES, -1)
    emission = mmd2(warm, optimal_weights(warm, emitter), embedding)
    lines = [
        {"reading": reading, "start": label, **_trace(run, case, reading, nodes)}
        for reading in RIDGES
        for label, nodes in (("warm", warm), ("cold", cold))
    ]
    descended = Descent(steps=QUICK_STEPS if run.quick else STEPS)(warm, embedding)
    steady = mmd2(descended, optimal_weights(descended, embedding), embedding)
    return {
        "case": name,
        "seeds": seeds,
        "bandwidth": case.toy.bandwidth,
        "observations": queries,
        "floor": _floor(case.toy),
        "seed floor": mmd2(start, uniform_weights(start), embedding).median(),
        "emission": _quartiles(emission),
        "descent": _quartiles(steady),
        "lines": lines,
    }


def contraction(toy: Toy, factors: tuple[float, ...]) -> list[float]:
    """How much of its distance to the mean a lone point keeps after one smoothed mean-shift step, at most.

    Arguments:
        toy: A Gaussian.
        factors: What its bandwidth is multiplied by.

    Example:
        >>> [round(value, 3) for value in contraction(gaussian_toy(2), (1.0, 4.0))]
        [0.883, 0.32]
    """
    mean, cov = toy.reference().moments()
    kept = []
    for factor in factors:
        kernel = SquaredExponential(factor * toy.bandwidth)
        points = torch.linalg.eigh(cov)[1].mT
        value, grad = toy.reference().embed(kernel).mean_and_grad(points)
        kept.append(float((points + kernel.bandwidth**2 * grad / value[:, None] - mean).norm(dim=-1).max()))
    return kept


def _trace(run: Run, case: Case, reading: str, nodes: Float[Tensor, "q m d"]) -> Data:
    """Median and quartiles over observations after every step, and what the steps cost."""
    steps, inner = (QUICK_STEPS, QUICK_INNER) if run.quick else (STEPS, INNER)
    generator = torch.Generator().manual_seed(SEED + 2)
    score = SmoothedScore(case.posterior.log_prob, case.posterior.score, inner, generator)
    shift = MeanShift(steps=steps, damping=DAMPING, bounds=BOX, jitter=RIDGES[reading])
    if reading == "score":
        shift = MeanShift(steps=steps, damping=DAMPING, bounds=BOX, jitter=RIDGES[reading], reading=score)
    trace: list[RefineStep] = []
    refine(nodes, case.posterior.embed(case.toy.kernel), shift, callback=trace.append)
    scores = torch.stack([step.mmd2 for step in trace]).quantile(nodes.new_tensor(arms.QUARTILES), dim=-1)
    per_step = NODES * (inner if reading == "score" else 1)
    return {
        "evaluations": [per_step * step for step in range(steps + 1)],
        "low": scores[0],
        "median": scores[1],
        "high": scores[2],
    }


def _conditional(model: LinearGaussian, observed: Tensor, informed: bool, count: int) -> Samples:
    """The Nadaraya-Watson posteriors at the observations, read through the exact posterior mean as a feature."""
    x, y = model.simulate(count, generator=torch.Generator().manual_seed(SEED + 3))
    if not informed:
        return Conditional(x, y).given(observed)
    features = model.latent_posterior(y).mean
    return Conditional(model.informed.features(x), features).given(model.latent_posterior(observed).mean)


def _floor(toy: Toy) -> Tensor:
    seeds = toy.seed_sets(NODES, FLOOR_SETS)
    return mmd2(seeds, uniform_weights(seeds), toy.reference().embed(toy.kernel)).median()


def _quartiles(scores: Tensor) -> Tensor:
    return scores.quantile(scores.new_tensor(arms.QUARTILES))
