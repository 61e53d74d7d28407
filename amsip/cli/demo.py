"""A groundwater example from end to end, written as one HTML page.

    amsip demo --output demo

Beside the page stand the rule (`rule.npz`) and the numbers (`results.json`).
"""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip demo`."""
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="FOLDER", help="default: ./demo")
    parser.add_argument("--repeats", type=int, default=64, metavar="R", help="rules per budget (default: 64)")


def run(arguments: argparse.Namespace) -> str:
    """Write the page, the rule and the numbers."""
    from amsip.demo import write_demo

    return write_demo(arguments.output, repeats=arguments.repeats)
