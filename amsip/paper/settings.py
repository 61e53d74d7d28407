"""The settings of every run as the code has them, beside what the paper prints; nothing of ours is typed here."""

import inspect
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from amsip.bench.toys import fitted
from amsip.bench.toys.measure import bench_toys
from amsip.maps.attention import AttentionMap
from amsip.maps.conditioned import CHANNELS, ConditionedMap
from amsip.paper import arms, flow_maps, flow_posterior, frontier, groundwater, resolution, toy_cells
from amsip.paper.base import Data
from amsip.paper.results import COMMITTED
from amsip.paper.tomography import problem
from amsip.problems import toys
from amsip.problems.darcy import Darcy
from amsip.problems.flow_tomography import LARGEST
from amsip.problems.limited_angle import LimitedAngle
from amsip.problems.tomography import PAPER_GEOMETRY, tomography
from amsip.references.samples import Samples
from amsip.training.config import FitConfig
from amsip.weights import JITTER

BANDWIDTHS = COMMITTED.parent / "results" / "bandwidths.json"
NOT_STATED, YES, EVERY = "not stated", "yes", "every run"
FOUR_DIGITS = "to four digits"
CLOSED, SAMPLED, EMPIRICAL = "closed-form", "sampled", "empirical"
SHORT = flow_maps.FITS[flow_maps.SHORT]
LEAST_COUNT, LARGEST_COUNT, CONDITIONED_COUNT = 1.1e5, 2.5e5, 1.0e6


class Line(NamedTuple):
    """A line of the paper's table, as printed; `target` is our name, `rank` is "-" where all coordinates are used."""

    name: str
    target: str
    kind: str
    dim: int
    rank: int | str
    steps: int


FLOW, DARCY, TOMOGRAPHY = "tomography (flow)", "darcy-32", "tomography-7"
TABLE = (
    Line("Gaussian d=2", "gaussian-2", CLOSED, 2, "-", 4000),
    Line("Gaussian d=4", "gaussian-4", CLOSED, 4, "-", 4000),
    Line("Gaussian d=8", "gaussian-8", CLOSED, 8, "-", 4000),
    Line("Gaussian d=16", "gaussian-16", CLOSED, 16, "-", 4000),
    Line("mixture d=10", "mixture-10", CLOSED, 10, "-", 3500),
    Line("mixture d=32", "mixture-32", CLOSED, 32, "-", 3500),
    Line("mixture d=64", "mixture-64", CLOSED, 64, "-", 3500),
    Line("banana d=2", "banana", SAMPLED, 2, "-", 3500),
    Line("tomography", TOMOGRAPHY, CLOSED, 256, 7, 4000),
    Line(FLOW, FLOW, SAMPLED, 4096, 32, 4000),
    Line("groundwater", DARCY, EMPIRICAL, 1024, 32, 6000),
)


def bandwidths() -> list[Data]:
    """The measured table of bandwidths, a row a line of the paper's table and in its order."""
    measured = {row["target"]: row for row in json.loads(BANDWIDTHS.read_text())["rows"]}
    return [measured[line.target] for line in TABLE]


def setting_rows() -> list[Data]:
    """Every setting: `experiment`, `setting`, `paper`, `ours` and whether it `agrees`, as text."""
    return [*_shared(), *_table(), *_counts(), *_problems(), *_unstated()]


def parameters(line: Line) -> int:
    """How many parameters the network of a line has."""
    if line.target == FLOW:
        return _count(ConditionedMap(flow_posterior.RANK, LimitedAngle().image_shape))
    if line.target == DARCY:
        return _count(AttentionMap(groundwater.RANK, width=groundwater.WIDTH))
    return _count(AttentionMap(problem().informed.rank if line.target == TOMOGRAPHY else line.dim))


def row(experiment: str, setting: str, paper: object, ours: object, unlike: str = "no") -> Data:
    """One setting; numbers are compared as they are printed.

    Example:
        >>> row("Gaussian d=2", "steps", 4000, 4000)["agrees"], row("a", "batch", NOT_STATED, 64)["agrees"]
        ('yes', 'not stated')
    """
    shown = [_text(value) for value in (paper, ours)]
    agrees = NOT_STATED if paper == NOT_STATED else YES if shown[0] == shown[1] else unlike
    return {"experiment": experiment, "setting": setting, "paper": shown[0], "ours": shown[1], "agrees": agrees}


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(item) for item in value)
    return str(value)


def _count(net: AttentionMap | ConditionedMap) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _shared() -> Iterator[Data]:
    """What the paper sets for all its runs."""
    fit, net = FitConfig(), AttentionMap(2).settings
    conditioned = ConditionedMap(flow_posterior.RANK, LimitedAngle().image_shape).settings
    yield row(EVERY, "numbers of nodes", (4, 8, 16, 32, 64), arms.BUDGETS)
    yield row(EVERY, "learning rate of Adam", 3e-4, fit.lr)
    yield row(EVERY, "schedule", "constant", fit.schedule)
    yield row(EVERY, "ridge", 1e-10, JITTER)
    yield row(EVERY, "base seed", 20260612, toys.BASE_SEED)
    yield row(EVERY, "seed of the network", 0, fitted.NET_SEED)
    yield row(EVERY, "precision of the network", "float64", fitted.DTYPE, "no: weights and scores alone in float64")
    yield row(EVERY, "draws behind a bandwidth", 4000, toys.BANDWIDTH_DRAWS)
    yield row(EVERY, "seed sets a budget", 256, toy_cells.SETS)
    yield row(EVERY, "width, blocks, heads", (64, 3, 4), [net[name] for name in ("width", "blocks", "heads")])
    yield row(EVERY, "width of the conditioning", 32, net["context"])
    yield row(EVERY, "scale of the displacement", 0.5, net["reach"])
    yield row("groundwater", "width of the network", 96, groundwater.WIDTH)
    shape = [conditioned[name] for name in ("width", "blocks", "heads")]
    yield row(FLOW, "width, blocks, heads", (128, 4, 8), shape)
    yield row(FLOW, "width of a token", 32, CHANNELS)
    yield row(FLOW, "seeds of the network", (0, 1, 2), flow_posterior.SEEDS)
    shorter = f"no: {SHORT.schedule} from {SHORT.lr:g}, for one core; the paper's own beside it"
    yield row(FLOW, "learning rate of Adam", fit.lr, SHORT.lr, shorter)


def _table() -> Iterator[Data]:
    """The columns of the paper's table that differ between its lines."""
    for line, width in zip(TABLE, bandwidths(), strict=True):
        kind, dim, rank, steps = _ours(line)
        yield row(line.name, "reference", line.kind, kind)
        yield row(line.name, "coordinates, rank", (line.dim, line.rank), (dim, rank))
        yield row(line.name, "steps", line.steps, steps, "no: see its learning rate")
        yield row(line.name, "bandwidth", f"{width['paper']:.4f}", f"{width['ours']:.4f}", width["agrees"])


def _ours(line: Line) -> tuple[str, int, int | str, int]:
    """Kind of reference, coordinates, rank and steps of a line, from the code that runs it."""
    if line.target == FLOW:
        return SAMPLED, LimitedAngle().projector.pixels, flow_posterior.RANK, SHORT.steps
    if line.target == DARCY:
        return EMPIRICAL, Darcy().dim, groundwater.RANK, groundwater.STEPS[groundwater.SHARP]
    if line.target == TOMOGRAPHY:
        return CLOSED, PAPER_GEOMETRY.pixels, problem().informed.rank, fitted.GAUSSIAN_STEPS
    toy = bench_toys()[line.target]
    return SAMPLED if isinstance(toy.target, Samples) else CLOSED, toy.dim, "-", fitted.paper_steps(toy)


def _counts() -> Iterator[Data]:
    """Parameters, as many as the paper's digits."""
    found = {line.name: parameters(line) for line in TABLE}
    plain = [count for name, count in found.items() if name != FLOW]
    span = [f"{count:.1e}" for count in (LEAST_COUNT, LARGEST_COUNT)]
    yield row(EVERY, "parameters, least and most", span, [f"{min(plain):.1e}", f"{max(plain):.1e}"])
    yield row(FLOW, "parameters", f"{CONDITIONED_COUNT:.1e}", f"{found[FLOW]:.1e}")


def _problems() -> Iterator[Data]:
    """Constants of the targets that the paper prints."""
    mixture, darcy = toys.mixture_toy(10).target, Darcy()
    yield row("Gaussian d>2", "deviation of the noise", 0.3, float(toys.gaussian_problem(4).noise[0].sqrt()))
    variances = sorted(float(cov[0, 0]) for cov in mixture.covs)  # type: ignore[attr-defined]
    yield row("mixtures", "variances within", (0.5, 2.0), variances)
    apart = float((mixture.means[1] - mixture.means[0]).norm())  # type: ignore[attr-defined]
    yield row("mixtures", "separation", 8.0 * 2.0**0.5, apart)
    geometry = (PAPER_GEOMETRY.size, PAPER_GEOMETRY.angles, PAPER_GEOMETRY.detectors)
    yield row("tomography", "pixels a side, angles, detectors", (16, 16, 16), geometry)
    yield row("tomography", "deviation of the noise", 0.8, float(problem().noise.flatten()[0].sqrt()))
    half = PAPER_GEOMETRY.half_range
    yield row("tomography", "wedge, degrees", "75", f"{half:g} to either side", "read as half of the range")
    yield row(
        "groundwater", "wells a side, drives, readings", (9, 8, 648), (darcy.sensors, darcy.drives, darcy.readings)
    )
    yield row("groundwater", "deviation of the noise", 0.003, darcy.noise)
    field = (darcy.prior.deviation, darcy.prior.length)
    yield row("groundwater", "field: deviation, correlation length", (0.75, 0.26), field)
    yield row(FLOW, "largest accepted draw", 1e4, LARGEST)
    relative = "no: relative to the mean variance"
    yield row(FLOW, "jitter of the whitening", 1e-6, f"{flow_posterior.RELATIVE_JITTER:g} relative", relative)


def _unstated() -> Iterator[Data]:
    """What a run cannot do without and the paper does not print."""
    two = toys.gaussian_problem(2)
    yield row(EVERY, "seed sets a step", NOT_STATED, fitted.BATCH)
    yield row(EVERY, "per-set optimum: steps, rate", NOT_STATED, (arms.finetune.steps, arms.finetune.rate))
    yield row("Gaussian d=2", "diagonal of the noise", NOT_STATED, two.noise.tolist())
    banks = (toys.BANANA_TRAINING_BANK, toys.BANANA_BANK)
    yield row("banana d=2", "draws for the mean, for the self-affinity", NOT_STATED, banks)
    prior = [inspect.signature(tomography).parameters[name].default for name in ("shift", "power", "scale")]
    yield row("tomography", "prior of the image: shift, power, scale", NOT_STATED, prior)
    yield row(FLOW, "draws of an observation in training", NOT_STATED, flow_posterior.FULL.draws)
    yield row(FLOW, "draws of a held-out observation", NOT_STATED, flow_posterior.FULL.bank)
    sizes = groundwater.FULL
    yield row("groundwater", "simulated pairs", NOT_STATED, sizes.atoms)
    yield row("groundwater", "held-in queries, held-out ones", NOT_STATED, (sizes.training, sizes.held_out))
    yield row("groundwater", "grid of the scheme", NOT_STATED, Darcy().grid)
    yield row("groundwater", "feature behind the responsibilities", NOT_STATED, f"{groundwater.FEATURES} components")
    yield row("resolution ablation", "subset, single budget", NOT_STATED, _budgets())
    yield row("finetuning frontier", "damping, steps", NOT_STATED, (frontier.DAMPING, frontier.STEPS))


def _budgets() -> str:
    subset, single = (resolution.NETS[name] for name in (resolution.SUBSET, resolution.SINGLE))
    return f"{_text(subset)}; {_text(single)}"
