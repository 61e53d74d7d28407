"""The observation-conditioned network of the flow runs: its tasks, its fit and its learning curve."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import mmd2
from amsip.maps.conditioned import ConditionedMap
from amsip.paper.base import Data, Run
from amsip.paper.flow_posterior import (
    BANK_SEED,
    KERNEL,
    RANK,
    Latent,
    Observed,
    chart_of,
    latent,
    observed,
    sizes_of,
    stem,
    trained_flow,
    training,
)
from amsip.paper.trained import REPORT_EVERY, weights_file
from amsip.pretrained import load_card, load_map, save_map
from amsip.problems.flow_tomography import HELD_OUT_SEED
from amsip.problems.toys import BASE_SEED
from amsip.references.samples import Samples
from amsip.training.config import FitConfig
from amsip.training.engine import fit_map
from amsip.training.log import Entry
from amsip.training.losses import SquaredDiscrepancy
from amsip.training.tasks import BUDGETS, Task, draw_budget
from amsip.weights import uniform_weights

CHECKED, QUICK_CHECKED = 32, 6
MEAN_SQUARED = SquaredDiscrepancy()
SHORT, PAPER = "short", "paper"
# the short one has half the paper's steps, at a higher rate that falls to zero: what a core does in four minutes
FITS = {
    SHORT: FitConfig(steps=2000, lr=1e-3, schedule="cosine", warmup=100, dtype="float32", check_every=200),
    PAPER: FitConfig(steps=4000, lr=3e-4, dtype="float32", check_every=200),
}
QUICK_STEPS, QUICK_WARMUP, QUICK_EVERY = 12, 2, 6


@dataclass(frozen=True, eq=False)
class FlowTasks:
    """Some observations a step, one seed set each, rows of the draws without replacement.

    Arguments:
        draws: The draws of every observation in its own chart.
        image: The observations.
        batch: How many a step.
        energy: The self-affinity of the rows that give the kernel mean, worked out once.
    """

    draws: Float[Tensor, "q n r"]
    image: Float[Tensor, "q 1 s s"]
    batch: int
    energy: Float[Tensor, "q"]

    @classmethod
    def of(cls, found: Observed, space: Latent, batch: int) -> "FlowTasks":
        """The tasks of some observations."""
        points = space.points(found.coefficients)
        draws = chart_of(points).forward(points)
        parts = [Samples(part).embed(KERNEL).energy for part in draws[:, : draws.shape[1] // 2].split(16)]
        return cls(draws, found.image, batch, torch.cat(parts))

    def __call__(self, generator: torch.Generator) -> Task:
        m = draw_budget(BUDGETS, generator)
        return self.task(m, torch.randperm(len(self.draws), generator=generator)[: self.batch], generator)

    def task(self, m: int, rows: Tensor, generator: torch.Generator) -> Task:
        """Seeds of m nodes and the embedding, for some of the observations."""
        draws = self.draws[rows]
        embedding = Samples(draws[:, : draws.shape[1] // 2]).embed(KERNEL)
        vars(embedding)["energy"] = self.energy[rows]
        return Task(Samples(draws).subset(m, generator=generator), embedding, self.image[rows])

    def gauges(self, generator: torch.Generator) -> "list[Gauge]":
        """A task a budget, over all observations, whose loss is relative to the floor."""
        tasks = [self.task(m, torch.arange(len(self.draws)), generator) for m in BUDGETS]
        return [Gauge(t.seeds, t.embedding, t.observation, _floor(t)) for t in tasks]


@dataclass(frozen=True, eq=False)
class Gauge(Task):
    """A held-out task with the mean floor of its seeds, so that every budget counts alike."""

    floor: float = 1.0


def relative_loss(nodes: Float[Tensor, "*q m d"], task: Task) -> Float[Tensor, ""]:
    """The mean squared discrepancy; on a held-out task in units of the floor."""
    value = MEAN_SQUARED(nodes, task)
    return value / task.floor if isinstance(task, Gauge) else value


def flow_map(run: Run, seed: int, schedule: str = SHORT) -> ConditionedMap:
    """The paper's observation-conditioned network of one training seed, from the cache or fitted now.

    Arguments:
        run: Where maps are kept, and who is told how far a fit is.
        seed: Of the draws, of the initial parameters and of the order of the tasks.
        schedule: `SHORT`, or `PAPER` for its number of steps and its rate.
    """
    path = map_file(run, seed, schedule)
    if not path.exists():
        _fit(run, seed, schedule)
    found = load_map(path)
    assert isinstance(found, ConditionedMap)
    return found


def map_file(run: Run, seed: int, schedule: str = SHORT) -> Path:
    """Where the weights of a training seed are kept."""
    return weights_file(run, f"{stem()}-{seed}" if schedule == SHORT else f"{stem()}-{seed}-{schedule}")


def curve(run: Run, seed: int, schedule: str = SHORT) -> Data:
    """The learning curve of a training seed: held-out discrepancy over the floor, the mean of the five budgets."""
    about = load_card(map_file(run, seed, schedule)).about
    return {"schedule": schedule} | {
        name: about[name] for name in ("seed", "steps", "every", "held_out", "losses", "seconds")
    }


def _fit(run: Run, seed: int, schedule: str) -> None:
    """Fits the network of a seed and writes it with its learning curve; a fit that was cut resumes."""
    sizes, config, path = sizes_of(run), FITS[schedule], map_file(run, seed, schedule)
    if run.quick:
        config = replace(config, steps=QUICK_STEPS, warmup=QUICK_WARMUP, check_every=QUICK_EVERY)
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = path.with_suffix(".checkpoint")
    space = latent(run)
    run.report(f"flow, seed {seed}: drawing {sizes.training} posteriors")
    tasks = FlowTasks.of(training(run, seed), space, sizes.batch)
    rows = slice(0, QUICK_CHECKED if run.quick else CHECKED)
    checked = FlowTasks.of(observed(HELD_OUT_SEED, rows, sizes.draws, BANK_SEED + 500), space, sizes.batch)
    gauges = checked.gauges(torch.Generator().manual_seed(BANK_SEED + 501))

    def tell(entry: Entry) -> None:
        if entry["step"] % REPORT_EVERY == 0:
            run.report(f"flow, seed {seed}: step {entry['step']} of {config.steps}, loss {entry['loss']:.4g}")

    shape = trained_flow().problem.image_shape
    net = ConditionedMap(RANK, shape, generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(BASE_SEED + seed)
    config = replace(config, checkpoint=str(checkpoint))
    log = fit_map(net, tasks, config, loss=relative_loss, held_out=gauges, generator=generator, callback=tell)
    about = {"seed": seed, "every": config.check_every, **log.as_dict()}
    save_map(net, path, about=about)
    checkpoint.unlink(missing_ok=True)
    run.report(f"flow, seed {seed}: fitted in {log.seconds:.0f} s")


def _floor(task: Task) -> float:
    return float(mmd2(task.seeds, uniform_weights(task.seeds), task.embedding).mean())
