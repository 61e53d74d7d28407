"""Calibrating stated errors and placements on random posteriors and random integrands, never on a benchmark."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from amsip import placement
from amsip._disk import write_atomically
from amsip.defaults import usual_steps, whitened_kernel
from amsip.errors import CALIBRATED, CALIBRATION, evidence
from amsip.placement import TABLE, achieved_ratio
from amsip.pretrained import load_card
from amsip.quadrature import emit
from amsip.references.samples import Samples
from amsip.training.universal import random_mixture, random_pool

DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
BUDGETS = (CALIBRATED[0], 16, 32, 64, CALIBRATED[1])
POOL = 2000
QUERIES = 6
DIRECTIONS = 3
# more than a normal's 68%: integrands have heavier tails, and twice the error is to cover nine in ten
COVERAGE = 0.72
INSIDE = 0.99
RULES = 300


@dataclass(frozen=True, eq=False)
class Cases:
    """Features of integrands, and the log of their true squared error relative to that of plain draws."""

    features: Float[Tensor, "n f"]
    log_ratio: Float[Tensor, "n"]


@dataclass(frozen=True, eq=False)
class Placed:
    """Features of rules, and the log of the discrepancy they achieved relative to plain draws."""

    features: Float[Tensor, "q f"]
    log_ratio: Float[Tensor, " q"]


def calibrate(
    path: str | Path = CALIBRATION,
    *,
    rules: int = RULES,
    rng_seed: int = 0,
    callback: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Fits the coefficients of stated errors and the table of placements; writes them with what made them (minutes).

    Arguments:
        path: Where the coefficients go, the placements beside them; by default where the package reads them.
        rules: On how many random batches of posteriors.
        rng_seed: Draws posteriors and integrands.
        callback: Called with the number of batches done.
    """
    gathered: list[Cases] = []
    placed: list[Placed] = []
    for done, (case, place) in enumerate(cases(rules, torch.Generator().manual_seed(rng_seed)), start=1):
        gathered.append(case)
        placed.append(place)
        if callback is not None:
            callback(done)
    features = torch.cat([case.features for case in gathered])
    coefficients, coverage = fit_coefficients(Cases(features, torch.cat([case.log_ratio for case in gathered])))
    origin = {
        "pool": POOL,
        "rules": rules * QUERIES,
        "rng_seed": rng_seed,
        "map": load_card("universal").sha256,
        "torch": torch.__version__,
        "command": f"amsip calibrate --rules {rules} --rng-seed {rng_seed}",
    }
    table = {"coefficients": coefficients, "coverage": coverage, "integrands": len(features), **origin}
    places = {**fit_placement(placed), **origin}
    write_atomically(Path(path).with_name(TABLE.name), (json.dumps(places, indent=2) + "\n").encode())
    write_atomically(Path(path), (json.dumps(table, indent=2) + "\n").encode())
    return table


def random_integrands(u: Float[Tensor, "q n d"], generator: Generator) -> Float[Tensor, "k q n"]:
    """Values of smooth, kinked, growing and oscillating functions along random directions, and of some norms.

    The random numbers are drawn anew; evaluate nodes and atoms in one call.

    Example:
        >>> random_integrands(torch.zeros(2, 5, 3), torch.Generator().manual_seed(0)).shape[1:]
        torch.Size([2, 5])
    """
    made = []
    for _ in range(DIRECTIONS):
        direction = torch.randn(u.shape[-1], generator=generator, dtype=torch.float64)
        p = u @ (direction / direction.norm()).to(u)
        a, b, t = (torch.rand((), generator=generator, dtype=torch.float64) for _ in range(3))
        threshold = 4.0 * t - 2.0
        made += [
            torch.cos(torch.exp(2.5 * a - 1.2) * p + 6.0 * b),
            torch.sigmoid(torch.exp(2.5 * a + 0.3) * (p - threshold)),
            torch.exp((0.2 + 0.8 * b) * p.clamp_max(20.0)),
            (p - threshold).clamp_min(0.0),
            (p - threshold).abs(),
            p.pow(3) - a * p,
            torch.tanh(3.0 * a * p) * p,
            torch.exp(-0.5 * (p - threshold).square() / (0.3 + b) ** 2),
        ]
    centre = 0.5 * torch.randn(u.shape[-1], generator=generator, dtype=torch.float64)
    made += [u.abs().amax(-1), u.norm(dim=-1), (u - centre.to(u)).norm(dim=-1), u.abs().sum(-1)]
    return torch.stack(made)


def cases(count: int, generator: Generator) -> Iterator[tuple[Cases, Placed]]:
    """Rules of the default map on random posteriors, each with its random integrands, and where they stand."""
    for index in range(count):
        dim = DIMENSIONS[int(torch.randint(len(DIMENSIONS), (), generator=generator))]
        m = BUDGETS[index % len(BUDGETS)]
        reference = _random_reference(dim, generator)
        rule = emit(reference, reference.subset(m, generator=generator), whitened_kernel(dim), usual_steps)
        values = random_integrands(torch.cat([rule.nodes, reference.atoms], -2), generator)
        at_nodes, at_atoms = values[..., :m].movedim(0, -1), values[..., m:].movedim(0, -1)
        found = evidence(rule.nodes, rule.weights, at_nodes, whitened_kernel(dim))
        error = (rule.weights[..., None] * at_nodes).sum(-2) - at_atoms.mean(-2)
        ratio = error.square() * m / found.variance.clamp_min(1e-300)
        # an integrand that is constant at the nodes gives no evidence; such estimates are flagged, not calibrated
        usable = (found.variance > 1e-4 * at_atoms.var(-2)).flatten()
        features = found.features(m, dim).flatten(0, 1)
        assert rule.embedding is not None
        place = Placed(placement.features(rule.nodes, rule.embedding), achieved_ratio(rule).clamp_min(1e-14).log())
        yield Cases(features[usable], ratio.flatten()[usable].clamp_min(1e-14).log()), place


def fit_coefficients(gathered: Cases) -> tuple[list[float], dict[str, float]]:
    """Coefficients of the log variance: a robust fit, then one scale so that one standard error covers `COVERAGE`."""
    x, y = gathered.features, gathered.log_ratio
    coefficients = torch.zeros(x.shape[-1], dtype=torch.float64, requires_grad=True)
    scale = x.square().mean(0).sqrt()
    optimiser = torch.optim.LBFGS([coefficients], max_iter=400, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        log_variance = x @ (coefficients / scale)
        value = _student_loss(y - log_variance, log_variance).mean()
        value.backward()
        return value

    optimiser.step(closure)
    found = (coefficients / scale).detach()
    shift = torch.quantile((y - x @ found)[:: max(1, len(y) // 500_000)], COVERAGE)
    found[0] += shift
    inside = (y - x @ found).exp().sqrt()
    coverage = {"within 1": (inside < 1).double().mean().item(), "within 2": (inside < 2).double().mean().item()}
    return found.tolist(), coverage


def fit_placement(placed: Sequence[Placed]) -> dict[str, Any]:
    """The centre and spread of the features, how far 99% of them reach, and the usual ratio as a linear function."""
    features, log_ratio = torch.cat([p.features for p in placed]), torch.cat([p.log_ratio for p in placed])
    varying = features[:, 1:]
    centre = varying.mean(0)
    cov = torch.cov(varying.mT)
    values, vectors = torch.linalg.eigh(cov)
    whitener = (vectors / values.clamp_min(1e-6).sqrt()).mT
    distance = ((varying - centre) @ whitener.mT).square().sum(-1).sqrt()
    usual = torch.linalg.lstsq(features, log_ratio[:, None]).solution[:, 0]
    return {
        "centre": centre.tolist(),
        "whitener": whitener.tolist(),
        "reach": distance.quantile(INSIDE).item(),
        "usual": usual.tolist(),
        "usual_spread": (log_ratio - features @ usual).std().item(),
    }


def _student_loss(log_square: Tensor, log_variance: Tensor) -> Tensor:
    """Minus the log density of a Student error with 4 degrees of freedom."""
    return 0.5 * log_variance + 2.5 * torch.nn.functional.softplus(log_square - math.log(4.0))


def _random_reference(dim: int, generator: Generator) -> Samples:
    if torch.rand((), generator=generator) < 0.5:
        draws = random_mixture(QUERIES, dim, generator).sample(POOL, generator=generator)
        return Samples(draws)
    return random_pool(QUERIES, dim, generator, size=POOL)
