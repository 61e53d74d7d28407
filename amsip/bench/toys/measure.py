"""The whole measurement: one small file a cell, so that a run can be cut and resumed."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from amsip._checks import NumericalError
from amsip._disk import write_atomically
from amsip.bench.toys.arms import FEW_SETS, FLOOR, Arm, Work, every_arm
from amsip.discrepancy import mmd2
from amsip.problems.toys import BANANA_TRAINING_BANK, Toy, banana, paper_toys
from amsip.references.base import Embedding
from amsip.weights import optimal_weights, uniform_weights

NODES = (4, 8, 16, 32, 64)
HELD_OUT = (6, 24, 48, 96)
SETS = 256
QUARTILES = (0.25, 0.5, 0.75)
# the median over the sets on which the optimum is known, so that ratios to it are of like with like
PAIRED = "median_of_few"

Cell = dict[str, object]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Arguments:
        toys: Names of toys.
        nodes: The values of M.
        sets: Seed sets a cell; the dear arms take fewer.
        names: Names of arms; all when empty.
        again: Names of arms whose finished cells are measured anew.
        gather: Measure nothing: only cells that are there count.
    """

    toys: Sequence[str]
    nodes: Sequence[int] = NODES
    sets: int = SETS
    names: Sequence[str] = ()
    again: Sequence[str] = ()
    gather: bool = False

    def arms(self, folder: Path) -> list[Arm]:
        """The arms it names."""
        return [arm for arm in every_arm(folder) if not self.names or arm.name in self.names]

    def missing(self, folder: Path) -> dict[str, dict[str, str]]:
        """The arms that cannot run here, per toy, and why."""
        found = {arm.name: {t: arm.missing(bench_toys()[t]) for t in self.toys} for arm in self.arms(folder)}
        left = {name: {t: why for t, why in reasons.items() if why} for name, reasons in found.items()}
        return {name: reasons for name, reasons in left.items() if reasons}


@lru_cache(maxsize=1)
def bench_toys() -> dict[str, Toy]:
    """The eight toys at the paper's bandwidths and their whitened variants, by name.

    The banana is its bank of 4000 draws, for the kernel mean and the self-affinity alike.

    Example:
        >>> len(bench_toys())
        16
    """
    plain = [banana(BANANA_TRAINING_BANK) if toy.name == "banana" else toy for toy in paper_toys()]
    return {toy.name: toy for toy in (*plain, *(toy.whitened() for toy in plain))}


def measure_plan(plan: Plan, folder: Path, report: Callable[[str], None]) -> list[Cell]:
    """Every cell of the plan, read from the folder or measured and written there.

    Arguments:
        plan: What to measure.
        folder: One JSON file per cell.
        report: Told how far it is, a line at a time.
    """
    for name, reasons in plan.missing(folder).items():
        report(f"left out: {name} on {len(reasons)} of {len(plan.toys)} toys ({next(iter(reasons.values()))})")
    cells: list[Cell] = []
    for done, name in enumerate(plan.toys, start=1):
        started = time.perf_counter()
        cells += _toy_cells(plan, bench_toys()[name], folder)
        report(f"{done} of {len(plan.toys)}: {name}, {time.perf_counter() - started:.0f} s")
    return cells


def _toy_cells(plan: Plan, toy: Toy, folder: Path) -> Iterator[Cell]:
    embedding = _embedding(toy)
    for m in plan.nodes:
        for arm in plan.arms(folder):
            if arm.missing(toy) or (arm.dear and m in HELD_OUT):
                continue
            path = folder / "cells" / f"{toy.name}-{m:03d}-{arm.slug}.json"
            stamp = {"sets": min(plan.sets, arm.sets), "of": plan.sets, "depends": arm.stamp(toy)}
            cell = None if arm.name in plan.again else _finished(path, stamp)
            if plan.gather:
                yield from [cell] if cell else []
                continue
            if cell is None or (PAIRED not in cell and "median" in cell and not arm.dear and m in NODES):
                work = Work(toy, embedding, m, toy.seed_sets(m, plan.sets)[: arm.sets])
                if cell is None:
                    cell = {"toy": toy.name, "arm": arm.name, "m": m, "stamp": stamp, **score_arm(arm, work)}
                else:
                    few = replace(work, seeds=work.seeds[:FEW_SETS])
                    cell = {**cell, PAIRED: score_arm(arm, few).get("median")}
                write_atomically(path, json.dumps(cell).encode())
            yield cell


def score_arm(arm: Arm, work: Work) -> Cell:
    """The quartiles of the squared discrepancy over the seed sets; a failure is a result too.

    Arguments:
        arm: Who chooses the nodes.
        work: On what.
    """
    started = time.perf_counter()
    try:
        nodes = arm.make(work)
        seconds = time.perf_counter() - started
        weights = uniform_weights(nodes) if arm.name == FLOOR else optimal_weights(nodes, work.embedding)
        scores = mmd2(nodes, weights, work.embedding)
    except (NumericalError, RuntimeError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    low, median, high = (float(v) for v in _quartiles(scores))
    floor = mmd2(work.seeds, uniform_weights(work.seeds), work.embedding)
    return {
        "median": median,
        "quartiles": [low, high],
        PAIRED: float(scores[:FEW_SETS].quantile(0.5)),
        "below_floor": float((scores < floor).to(scores).mean()) if len(scores) == len(floor) else None,
        "ess": float((1.0 / (work.m * weights.square().sum(-1))).median()),
        "seconds": round(seconds, 4),
    }


def _quartiles(scores: Float[Tensor, "r"]) -> Float[Tensor, "3"]:
    return scores.quantile(torch.tensor(QUARTILES, dtype=scores.dtype))


@lru_cache(maxsize=1)
def _embedding(toy: Toy) -> Embedding:
    embedding = toy.reference().embed(toy.kernel)
    # for atoms it is costly, and every arm is scored with it
    _ = embedding.energy
    return embedding


def _finished(path: Path, stamp: dict[str, object]) -> Cell | None:
    if not path.exists():
        return None
    cell: Cell = json.loads(path.read_text())
    return cell if cell["stamp"] == stamp else None
