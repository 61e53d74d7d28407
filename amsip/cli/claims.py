"""Which sentences of the paper hold, from the committed results.

    amsip claims
    amsip claims --json claims.json          every row: number, interval, verdict, command, commit
    amsip claims --results runs/paper        judge your own results instead
    amsip claims --pages docs                write paper.md from them

Verdicts are judged from the numbers in the files; nothing is computed again.
"""

import argparse
import json
import textwrap
from pathlib import Path

from amsip._disk import write_atomically
from amsip.paper.base import Data
from amsip.paper.page import page
from amsip.paper.results import COMMITTED, claim_rows, load_results, tally

WIDTH = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip claims`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row here")
    parser.add_argument("--results", type=Path, default=COMMITTED, metavar="DIR", help="default: the committed ones")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write paper.md here")


def run(arguments: argparse.Namespace) -> str:
    """Judge every claim and say how many hold."""
    results = load_results(arguments.results)
    if not results:
        raise FileNotFoundError(f"There are no results in '{arguments.results}': make some with `amsip reproduce`.")
    rows = claim_rows(results)
    if arguments.json is not None:
        write_atomically(arguments.json, (json.dumps(rows, indent=1, allow_nan=False) + "\n").encode())
    if arguments.pages is not None:
        write_atomically(arguments.pages / "paper.md", page(results).encode())
    return "\n\n".join([*map(_block, rows), tally(rows)])


def _block(row: Data) -> str:
    number = "" if row["number"] is None else f"  {row['number']:.4g}"
    interval = "" if row["interval"] is None else "  [{:.4g}, {:.4g}]".format(*row["interval"])
    head = f"{row['claim']}: {row['verdict']}{number}{interval}"
    indent = {"initial_indent": "    ", "subsequent_indent": "    "}
    return "\n".join(
        [head, *(textwrap.fill(row[part], WIDTH, **indent) for part in ("sentence", "note"))]  # type: ignore[arg-type]
    )
