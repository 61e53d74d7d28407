"""What was tried for the default, what won, and what it costs: one change at a time, on the development posteriors.

    amsip bench default --json default.json --pages docs

A run that was cut goes on where it stopped.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from amsip._disk import write_atomically
from amsip.bench.base import markdown, origin, record, table
from amsip.bench.cache import cache_directory
from amsip.bench.posteriors.choices import CHOICES, Choice
from amsip.bench.posteriors.data import DEVELOPMENT, DIMENSIONS, TASKS
from amsip.bench.posteriors.integrands import FAMILIES
from amsip.bench.posteriors.pages import number
from amsip.bench.posteriors.yardstick import SEED_SETS, cell_seed, score_rules, seed_sets, split_posterior
from amsip.bench.timing import milliseconds
from amsip.references.samples import Samples

NODES = 32
GROUPS = {"d = 2": (2,), "d = 4, 5": (4, 5), "d = 10": (10,)}
HEADER = ("choice", *GROUPS, "least", "ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args([]).sets
        24
    """
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="one posterior of each dimension, fewer seed sets")
    parser.add_argument("--sets", type=int, default=SEED_SETS, metavar="R", help="seed sets a cell")
    parser.add_argument("--processes", type=int, default=2, metavar="P", help="posteriors at a time")
    parser.add_argument("--cells", type=Path, metavar="DIR", help="where cells are kept; in the cache otherwise")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write default.md here")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """One row a choice: what a node is worth in each group of dimensions, the least family, the time."""
    started = time.perf_counter()
    tasks = ("gaussian_mixture", "slcp", "gaussian_linear") if arguments.quick else TASKS
    sets = 6 if arguments.quick else arguments.sets
    folder = arguments.cells or cache_directory("default")
    seen = {task: DEVELOPMENT[i % len(DEVELOPMENT)] for i, task in enumerate(tasks)}
    jobs = [(task, observation, sets, folder) for task, observation in seen.items()]
    cells = [cell for cells in _parallel(jobs, arguments.processes) for cell in cells]
    rows = [summary(choice, [cell for cell in cells if cell["choice"] == choice.name]) for choice in CHOICES]
    command = "python -m amsip bench default" + (" --quick" if arguments.quick else "")
    body = {"nodes": NODES, "sets": sets, "observations": seen, "rows": rows}
    result = record(command, started, body)
    if arguments.pages is not None:
        write_atomically(arguments.pages / "default.md", page(result).encode())
    return result


def render(result: dict[str, Any]) -> str:
    """The table, for a terminal."""
    return table(HEADER, [_cells(row) for row in result["rows"]])


def page(result: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    observations = ", ".join(f"{task} {observation}" for task, observation in result["observations"].items())
    sections = [
        f"""# The default, decided by measurement

Every row changes one thing of the default, the first row. Shown is what a node is worth (see
[posteriors](posteriors.md)) at M = {result["nodes"]}: the geometric mean over nine families of integrands, capped, over
posteriors of sbibm (task and observation: {observations}), with {result["sets"]} seed sets. "Least" is the family of
the task in which a node is worth least, uncapped. ms: one rule from 10,000 draws, one thread. Nothing here saw
observations 6 to 10.

The kernel was chosen by its worst family before its mean: a smoother one is worth more on average, but leaves
integrands with kinks and jumps hardly better than draws. Where two choices are alike, the simpler one was kept: signed
weights with no constraint, the smallest ridge. The network stays because descent alone needs about twice the time for
as much."""
    ]
    groups = list(dict.fromkeys(row["group"] for row in result["rows"]))
    default = [row for row in result["rows"] if row["group"] == groups[0]]
    for group in groups[1:]:
        rows = [*default, *(row for row in result["rows"] if row["group"] == group)]
        sections.append(f"## {group}\n\n" + markdown(HEADER, [_cells(row) for row in rows]))
    return "\n\n".join([*sections, origin(result)]) + "\n"


def measure(task: str, observation: int, sets: int, folder: Path) -> list[dict[str, Any]]:
    """Every choice on one posterior, from the same seeds; finished cells are read."""
    split, cells = split_posterior(task, observation), []
    dim, rng_seed = DIMENSIONS[task], cell_seed(task, observation, NODES)
    seeds = seed_sets(split, NODES, sets, rng_seed)
    for choice in CHOICES:
        path = folder / f"{task}-{observation:02d}-{choice.slug}.json"
        stamp = choice.stamp(dim) | {"sets": sets}
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get("stamp") != stamp:
            rule = choice.rule(Samples(split.pool.expand(sets, *split.pool.shape)), seeds)
            single = Samples(split.pool)
            ms = milliseconds(lambda one=choice, given=single: one.rule(given, seeds[0]))  # type: ignore[misc]
            raw = {name: v[0] for name, v in score_rules(split, rule.nodes, rule.weights).pool.raw.items()}
            found = {"task": task, "choice": choice.name, "stamp": stamp, "raw": raw, "ms": ms}
            write_atomically(path, json.dumps(found).encode())
        cells.append(found)
    return cells


def summary(choice: Choice, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Capped geometric means by dimension, and the least family of any task."""
    cap = 10_000 / NODES
    worth = {}
    for name, dims in GROUPS.items():
        values = [min(v, cap) for cell in cells if DIMENSIONS[cell["task"]] in dims for v in cell["raw"].values()]
        worth[name] = statistics.geometric_mean(values)
    least = min(
        (statistics.median(cell["raw"][family] for cell in cells if cell["task"] == task), family, task)
        for task in {cell["task"] for cell in cells}
        for family in FAMILIES
    )
    ms = statistics.median(cell["ms"] for cell in cells)
    return {"group": choice.group, "choice": choice.name, "worth": worth, "least": least, "ms": ms}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    value, family, task = row["least"]
    worth = [number(row["worth"][name]) for name in GROUPS]
    return (row["choice"], *worth, f"{number(value)} {family}, {task}", number(row["ms"]))


def _parallel(jobs: Sequence[tuple[str, int, int, Path]], processes: int) -> list[list[dict[str, Any]]]:
    done: list[list[dict[str, Any]]] = []
    if processes == 1:
        return [_report(job, measure(*job)) for job in jobs]
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for job, future in [(job, pool.submit(measure, *job)) for job in jobs]:
            done.append(_report(job, future.result()))
    return done


def _report(job: tuple[str, int, int, Path], cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sys.stderr.write(f"{job[0]} {job[1]}: {len(cells)} choices\n")
    sys.stderr.flush()
    return cells
