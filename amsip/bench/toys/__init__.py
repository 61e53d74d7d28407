"""Every way of choosing nodes on the paper's toys: same seeds, same embedding, same weights.

    amsip bench toys
    amsip bench toys --train --json toys.json --pages docs
    amsip bench toys --quick

A run that was cut goes on where it stopped: every finished cell is a file. Maps that are fitted to one toy (the
paper's, and the unrolled one given the same time) are fitted under --train and kept beside the cells.
"""

import argparse
import sys
import time
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bench.base import record
from amsip.bench.cache import cache_directory
from amsip.bench.toys import fitted, page
from amsip.bench.toys.measure import HELD_OUT, NODES, SETS, Plan, bench_toys, measure_plan
from amsip.bench.toys.page import render as render
from amsip.bench.toys.studies import study_parts

QUICK_TOYS = ("gaussian-2", "mixture-10-whitened")
QUICK_NODES = (4, 16)
QUICK_SETS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--toys", "banana,gaussian-2"]).toys
        ('banana', 'gaussian-2')
    """
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="two toys, two budgets, 32 seed sets")
    parser.add_argument("--train", action="store_true", help="fit the maps that are missing, minutes each")
    parser.add_argument("--toys", type=_words, default=(), metavar="LIST", help="names of toys, with commas between")
    parser.add_argument("--arms", type=_words, default=(), metavar="LIST", help="names of arms, with commas between")
    parser.add_argument("--again", type=_words, default=(), metavar="LIST", help="arms to measure anew")
    parser.add_argument("--gather", action="store_true", help="measure nothing: report the cells that are there")
    parser.add_argument("--studies", type=_words, default=(), metavar="LIST", help="of repeats, endings: minutes each")
    parser.add_argument("--nodes", type=_numbers, default=(), metavar="LIST", help="values of M; 4 to 96 otherwise")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write toys.md here")
    parser.add_argument("--cells", type=Path, metavar="DIR", help="where cells and maps are kept; else in the cache")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Fit what is asked for, measure what is missing, gather every cell, and write the page where asked."""
    started = time.perf_counter()
    quick = bool(arguments.quick)
    folder = arguments.cells or cache_directory("toys-quick" if quick else "toys")
    plan = Plan(
        toys=arguments.toys or (QUICK_TOYS if quick else tuple(bench_toys())),
        nodes=arguments.nodes or (QUICK_NODES if quick else NODES + HELD_OUT),
        sets=QUICK_SETS if quick else SETS,
        names=arguments.arms,
        again=arguments.again,
        gather=arguments.gather,
    )
    if arguments.train and not arguments.gather:
        for name in plan.toys:
            fitted.fit_missing(bench_toys()[name], folder, _report)
    cells = measure_plan(plan, folder, _report)
    arms = plan.arms(folder)
    body = {
        "toys": list(plan.toys),
        "nodes": list(plan.nodes),
        "arms": [arm.name for arm in arms],
        "dear": [arm.name for arm in arms if arm.dear],
        "missing": plan.missing(folder),
        "maps": fitted.spent([bench_toys()[name] for name in plan.toys], folder),
        "studies": study_parts(folder, () if plan.gather else arguments.studies, _report),
        "cells": cells,
    }
    words = [option for option, chosen in (("--quick", quick), ("--gather", plan.gather)) if chosen]
    result = record(" ".join(["python -m amsip bench toys", *words]), started, body)
    if arguments.pages is not None:
        write_atomically(arguments.pages / "toys.md", page.page(result).encode())
    return result


def _report(line: str) -> None:
    sys.stderr.write(line + "\n")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _words(text))
