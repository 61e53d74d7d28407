"""Measurements on real posteriors: what a node is worth to someone who integrates.

    amsip bench posteriors --quick
    amsip bench posteriors --json posteriors.json --pages docs
    amsip bench posteriors --install-rivals

A run that was cut goes on where it stopped: every finished cell is a file.
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bench.base import record
from amsip.bench.cache import cache_directory
from amsip.bench.posteriors import caution, pages
from amsip.bench.posteriors.arms import DEFAULT, DESCENT, PLAIN, REWEIGHTED, all_arms
from amsip.bench.posteriors.data import DEVELOPMENT, FINAL, TASKS
from amsip.bench.posteriors.figure import draw_figure
from amsip.bench.posteriors.limits import measure_limits
from amsip.bench.posteriors.measure import NODES, Plan, fill
from amsip.bench.posteriors.summary import read_cells
from amsip.bench.rivals.foreign import install_rivals, installed_versions

QUICK_TASKS = ("gaussian_mixture", "slcp", "gaussian_linear")
QUICK_METHODS = (PLAIN, REWEIGHTED, DEFAULT, DESCENT, "greedy sequential BQ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--observations", "1-3"]).observations
        (1, 2, 3)
    """
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="three posteriors, M = 32, the arms that need nothing")
    parser.add_argument("--final", action="store_true", help="observations 6 to 10, on which nothing was ever chosen")
    parser.add_argument("--observations", type=_numbers, default=DEVELOPMENT, metavar="LIST", help="such as 1-5 or 1,3")
    parser.add_argument("--tasks", type=_words, default=TASKS, metavar="LIST", help=",".join(TASKS))
    parser.add_argument("--nodes", type=_numbers, default=(), metavar="LIST", help="values of M; 8 to 128 otherwise")
    parser.add_argument("--methods", type=_words, default=(), metavar="LIST", help="names of arms, with commas between")
    parser.add_argument("--again", type=_words, default=(), metavar="LIST", help="arms to measure anew")
    parser.add_argument("--sets", type=int, default=24, metavar="R", help="seed sets a cell")
    parser.add_argument("--processes", type=int, default=2, metavar="P", help="posteriors at a time")
    parser.add_argument("--cells", type=Path, metavar="DIR", help="where cells are kept; in the cache otherwise")
    parser.add_argument("--gather", action="store_true", help="measure nothing: report the cells that are there")
    parser.add_argument("--limits", action="store_true", help="also measure the cases where a rule is the wrong tool")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write posteriors.md and its figure here")
    parser.add_argument("--install-rivals", action="store_true", help="make the rivals' own environment, then stop")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure what is missing, gather every cell, and write the pages where asked."""
    if arguments.install_rivals:
        return {"installed": install_rivals(_report)}
    started = time.perf_counter()
    plan = plan_of(arguments)
    folder = arguments.cells or cache_directory("posteriors")
    if not arguments.gather:
        fill(plan, folder, arguments.processes, _report)
    body = {
        "plan": asdict(plan),
        "rivals": installed_versions(),
        "missing": plan.missing(),
        "cells": [row for row in read_cells(folder, plan.observations) if plan.covers(row)],
        "limits": measure_limits(_report) if arguments.limits else {},
    }
    result = record(_command(arguments), started, body)
    if arguments.pages is not None:
        write_pages(result, arguments.pages)
    return result


def render(result: dict[str, object]) -> str:
    """One line a task and method."""
    if "installed" in result:
        return "\n".join(f"{name} {version}" for name, version in result["installed"].items())  # type: ignore[attr-defined]
    return pages.terminal(result)


def write_pages(result: dict[str, object], directory: Path) -> None:
    """`posteriors.md` with its figure and, where the limits were measured, `when-not-to-use.md`."""
    write_atomically(directory / "posteriors.md", pages.page(result).encode())
    draw_figure(result, directory / pages.FIGURE)
    if result["limits"]:
        write_atomically(directory / "when-not-to-use.md", caution.page(result).encode())


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What the options ask for."""
    observations = FINAL if arguments.final else arguments.observations
    if arguments.quick:
        return Plan(QUICK_TASKS, observations[:1], ((32,),), QUICK_METHODS, (32,), arguments.sets, arguments.again)
    known = {arm.method for arm in all_arms()}
    for name in (*arguments.methods, *arguments.again):
        if name not in known:
            raise ValueError(f"`--methods` must be among {sorted(known)}: got {name!r}.")
    groups = (arguments.nodes,) if arguments.nodes else NODES
    return Plan(arguments.tasks, observations, groups, arguments.methods, (32,), arguments.sets, arguments.again)


def _command(arguments: argparse.Namespace) -> str:
    options = (
        ("--quick", arguments.quick),
        ("--final", arguments.final),
        ("--gather", arguments.gather),
        ("--limits", arguments.limits),
    )
    words = [option for option, chosen in options if chosen]
    if not arguments.final and arguments.observations != DEVELOPMENT:
        words += ["--observations", ",".join(map(str, arguments.observations))]
    if arguments.nodes:
        words += ["--nodes", ",".join(map(str, arguments.nodes))]
    return " ".join(["python -m amsip bench posteriors", *words])


def _report(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)
