"""The whole measurement: cells in parallel, each a small file written once, so that a run can be cut and resumed."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from amsip._disk import sha256, write_atomically
from amsip.bench.base import commit
from amsip.bench.posteriors.arms import DEFAULT, PLAIN, REWEIGHTED, Arm, Outcome, all_arms
from amsip.bench.posteriors.data import DEVELOPMENT, DIMENSIONS, TASKS
from amsip.bench.posteriors.stated import stated_errors
from amsip.bench.posteriors.yardstick import SEED_SETS, Score, Split, cell_seed, score_rules, split_posterior
from amsip.bench.rivals.foreign import describe
from amsip.defaults import STEPS, whitened_kernel
from amsip.errors import CALIBRATION
from amsip.pretrained import load_card

NODES = ((32,), (8, 16, 64, 128))
POLL_SECONDS = 10.0
# measured a second time on half of the draws, and there scored against the other half
HALVED, HALVED_NODES = (PLAIN, REWEIGHTED, DEFAULT, "greedy sequential BQ"), 32
# measured at every M; the others at the headline M alone
ALWAYS = (PLAIN, REWEIGHTED, DEFAULT)

Job = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Arguments:
        tasks: Which posteriors.
        observations: Which observations of each.
        nodes: The values of M in groups: a group is measured everywhere before the next one.
        methods: Names of arms; all when empty.
        rival_nodes: The values of M at which rivals run.
        sets: Seed sets a cell.
        again: Names of arms whose finished cells are measured anew.
    """

    tasks: Sequence[str] = TASKS
    observations: Sequence[int] = DEVELOPMENT
    nodes: Sequence[tuple[int, ...]] = NODES
    methods: Sequence[str] = ()
    rival_nodes: Sequence[int] = (32,)
    sets: int = SEED_SETS
    again: Sequence[str] = ()

    def arms(self, m: int) -> list[Arm]:
        """The arms it names at this M."""
        chosen = [arm for arm in all_arms() if not self.methods or arm.method in self.methods]
        return [arm for arm in chosen if m in self.rival_nodes or arm.method in ALWAYS]

    def missing(self) -> dict[str, str]:
        """The arms it names that cannot run here, and why."""
        reasons = {arm.method: arm.missing() for arm in all_arms() if not self.methods or arm.method in self.methods}
        return {method: reason for method, reason in reasons.items() if reason is not None}

    def covers(self, row: dict) -> bool:
        """Whether a measured row belongs to it."""
        sizes = {m for group in self.nodes for m in group}
        named = not self.methods or row["method"] in self.methods
        return named and row["task"] in self.tasks and row["m"] in sizes and row["observation"] in self.observations

    def jobs(self) -> list[Job]:
        """A posterior and a group of M each: the unit of parallel work."""
        return [(task, seen, group) for group in self.nodes for seen in self.observations for task in self.tasks]


def fill(plan: Plan, folder: Path, processes: int, report: Callable[[str], None]) -> None:
    """Fill the folder with every cell of the plan that is not there yet.

    Arguments:
        plan: What to measure.
        folder: One JSON file per cell.
        processes: How many at a time; 1 runs here.
        report: Told how far it is, a line at a time.
    """
    jobs = plan.jobs()
    for method, reason in plan.missing().items():
        report(f"left out: {method} ({reason})")
    if processes == 1:
        for done, job in enumerate(jobs, start=1):
            measure_job(plan, folder, job)
            report(f"{done} of {len(jobs)}: {job[0]} {job[1]}, M = {job[2]}")
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        pending = {pool.submit(measure_job, plan, folder, job): job for job in jobs}
        while pending:
            for future in wait(pending, POLL_SECONDS, FIRST_COMPLETED).done:
                future.result()
                job = pending.pop(future)
                report(f"{len(jobs) - len(pending)} of {len(jobs)}: {job[0]} {job[1]}, M = {job[2]}")


def measure_job(plan: Plan, folder: Path, job: Job) -> None:
    """All arms on one posterior at some M."""
    task, observation, group = job
    dim, made = DIMENSIONS[task], commit()
    for m in group:
        for arm in plan.arms(m):
            stamp = _stamp(arm, plan.sets, dim)
            path = folder / f"{task}-{observation:02d}-{m:03d}-{arm.slug}.json"
            if arm.missing() or not arm.sized(m, dim) or (arm.method not in plan.again and _finished(path, stamp)):
                continue
            cell = {"task": task, "observation": observation, "m": m, "method": arm.method, "kernel": arm.kernel}
            body = _cell(arm, task, observation, m, plan.sets)
            write_atomically(path, json.dumps({**cell, "commit": made, "stamp": stamp, **body}).encode())


def _stamp(arm: Arm, sets: int, dim: int) -> dict[str, object]:
    """What a finished cell must share with an arm to be taken for it."""
    common = {"kernel": describe(whitened_kernel(dim)), "sets": sets}
    if arm.method != DEFAULT:
        return common
    shipped = {"map": load_card("universal").sha256, "steps": STEPS, "errors": sha256(CALIBRATION.read_bytes())}
    return {**common, **shipped}


def _cell(arm: Arm, task: str, observation: int, m: int, sets: int) -> dict[str, object]:
    """The scores of an arm under each of its ways of weighting; a failure is a result too."""
    rng_seed = cell_seed(task, observation, m)
    split = split_posterior(task, observation)
    try:
        outcome = _outcome(arm, split, m, sets, rng_seed)
        settings = {name: {"pool": asdict(s.pool)} for name, s in _scores(split, outcome).items()}
        stated = {"stated": _stated(split, outcome)} if arm.method == DEFAULT else {}
        if arm.method in HALVED and m == HALVED_NODES:
            half = split_posterior(task, observation, halved=True)
            from_half = _outcome(arm, half, m, sets, rng_seed)
            for name, score in _scores(half, from_half).items():
                settings[name]["held_out"] = asdict(score)["held_out"]
            if stated:
                stated["stated held-out"] = _stated(half, from_half)
    except (RuntimeError, ArithmeticError, ValueError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"ms": outcome.ms, "settings": settings, **stated}


def _outcome(arm: Arm, split: Split, m: int, sets: int, rng_seed: int) -> Outcome:
    with torch.no_grad():
        return arm.make(split, m, sets, torch.Generator().manual_seed(rng_seed))


def _scores(split: Split, outcome: Outcome) -> dict[str, Score]:
    return {name: score_rules(split, outcome.nodes, weights) for name, weights in outcome.weights.items()}


def _stated(split: Split, outcome: Outcome) -> dict[str, dict[str, float]]:
    return stated_errors(split, outcome.nodes, outcome.weights["optimal"])


def _finished(path: Path, stamp: dict[str, object]) -> bool:
    if not path.exists():
        return False
    return json.loads(path.read_text())["stamp"] == json.loads(json.dumps(stamp))
