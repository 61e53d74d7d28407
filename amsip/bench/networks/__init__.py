"""Designs of the network side by side: depth, width, weight sharing, loss and family, each trained alike.

    amsip bench networks --json networks.json --pages docs
    amsip bench networks --quick

A run that was cut goes on where it stopped: every finished network is a file, and so are its weights.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import torch

from amsip._disk import write_atomically
from amsip.bench.base import record
from amsip.bench.cache import cache_directory
from amsip.bench.networks import page
from amsip.bench.networks.heldout import HeldOut
from amsip.bench.networks.measure import Cell, Job, measure
from amsip.bench.networks.page import render as render
from amsip.bench.networks.summary import summarise
from amsip.bench.networks.variants import NONE, QUICK, SHIPPED, VARIANTS

STEPS, QUICK_STEPS = 500, 5
QUICK_HELD_OUT = HeldOut(dims=(2,), nodes=(8,), batches=1, queries=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--steps", "7"]).steps
        7
    """
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="two designs, five steps, a few posteriors")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help="training steps of each design")
    parser.add_argument("--gather", action="store_true", help="train nothing: report the networks that are there")
    parser.add_argument("--processes", type=int, default=2, metavar="P", help="networks at a time")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write networks.md here")
    parser.add_argument("--cells", type=Path, metavar="DIR", help="where cells and weights are kept; else in the cache")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Train and score what is missing, then one row a network."""
    started = time.perf_counter()
    quick = bool(arguments.quick)
    folder = arguments.cells or cache_directory("networks-quick" if quick else "networks")
    folder.mkdir(parents=True, exist_ok=True)
    held_out, steps = (QUICK_HELD_OUT, QUICK_STEPS) if quick else (HeldOut(), arguments.steps)
    # what every other row is measured by comes first, so that a cut run can be gathered
    names = [NONE, SHIPPED, *(variant.name for variant in (QUICK if quick else VARIANTS))]
    jobs = [Job(name, steps, held_out, folder) for name in names]
    if arguments.gather:
        jobs = _gathered(jobs)
    cells = _measured(jobs, arguments.processes)
    body = {
        "steps": steps,
        "held_out": asdict(held_out),
        "missing": [name for name in names if name not in {cell["name"] for cell in cells}],
        "rows": summarise([*cells[2:], *cells[1::-1]]),
    }
    words = [option for option, chosen in (("--quick", quick), ("--gather", arguments.gather)) if chosen]
    words += [f"--steps {steps}"] if not quick and steps != STEPS else []
    result = record(" ".join(["python -m amsip bench networks", *words]), started, body)
    if arguments.pages is not None:
        write_atomically(arguments.pages / "networks.md", page.page(result).encode())
    return result


def _gathered(jobs: Sequence[Job]) -> list[Job]:
    """Those that are done, once the rows that all others are compared with are."""
    missing = [job.name for job in jobs[:3] if job.finished() is None]
    if missing:
        raise FileNotFoundError(f"There is nothing to gather without {', '.join(missing)}: run without --gather.")
    return [job for job in jobs if job.finished() is not None]


def _measured(jobs: Sequence[Job], processes: int) -> list[Cell]:
    if processes == 1:
        return [_reported(measure(job)) for job in jobs]
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        return [_reported(cell) for cell in pool.map(measure, jobs)]


def _reported(cell: Cell) -> Cell:
    sys.stderr.write(f"{cell['name']}: {cell['steps']} steps, {cell['seconds']} s\n")
    sys.stderr.flush()
    return cell
