"""Reproduce a figure or table of the paper.

    amsip reproduce                          what there is, how long it takes, what came out
    amsip reproduce dq-mmd
    amsip reproduce dq-mmd --quick           a small version, a minute at most
    amsip reproduce --all --output figures

Each experiment writes LABEL.json (data, configuration, command, commit, versions, seconds), LABEL.png and LABEL.pdf.
One that is there already is drawn again but not computed again, unless --again is given; one that was cut goes on
where it stopped.
"""

import argparse
import sys
from pathlib import Path

from amsip.paper.produce import produce
from amsip.paper.registry import experiment, labels
from amsip.paper.results import headline, load_results

OUTPUT = Path("runs/paper")


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip reproduce`."""
    parser.add_argument("labels", nargs="*", metavar="LABEL", help="labels of figures; without any, they are listed")
    parser.add_argument("--all", action="store_true", help="every experiment")
    parser.add_argument("--quick", action="store_true", help="small versions, a minute each")
    parser.add_argument("--again", action="store_true", help="compute even what is there")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help=f"default: {OUTPUT}")


def run(arguments: argparse.Namespace) -> str:
    """List the experiments, or run those that were named."""
    names = labels() if arguments.all else tuple(arguments.labels)
    if not names:
        return _listing()
    chosen = [experiment(name) for name in names]
    lines = []
    for done, found in enumerate(chosen, start=1):
        _report(f"[{done}/{len(chosen)}] {found.label}")
        result, fresh = produce(found, arguments.output, quick=arguments.quick, again=arguments.again, report=_indented)
        state = f"{result['seconds']:.0f} s" if fresh else "was there"
        lines.append(f"{found.label} ({state}): {found.headline(result['data'])}")
    return "\n".join([*lines, f"written to {arguments.output}"])


def _listing() -> str:
    results = load_results()
    rows = []
    for label in labels():
        found = experiment(label)
        rows.append((label, f"{found.minutes:g}", found.title, headline(label, results)))
    lines = [f"{label}  ({minutes} min)  {title}\n    {result}" for label, minutes, title, result in rows]
    return "\n".join([*lines, "", "Run one: amsip reproduce LABEL"])


def _report(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _indented(line: str) -> None:
    _report(f"    {line}")
