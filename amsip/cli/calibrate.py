"""Calibrate the stated errors and placements of the package again, on random posteriors and integrands.

    amsip calibrate -o calibration.json

Needed only after the shipped map or the default kernel changed; takes a few minutes.
"""

import argparse
from pathlib import Path

from amsip.errors import CALIBRATION


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip calibrate`."""
    parser.add_argument("-o", "--output", type=Path, default=CALIBRATION, help="the table to write (default: shipped)")
    parser.add_argument("--rules", type=int, default=300, help="random batches of posteriors (default: 300)")
    parser.add_argument("--rng-seed", type=int, default=0, help="draws posteriors and integrands (default: 0)")


def run(arguments: argparse.Namespace) -> str:
    """Calibrate, and say what the errors cover."""
    # training is imported where it is used: the other verbs do not need it
    from amsip.training.calibration import calibrate

    coverage = calibrate(arguments.output, rules=arguments.rules, rng_seed=arguments.rng_seed)["coverage"]
    return ", ".join(f"{share:.0%} of errors {name} stated" for name, share in coverage.items())
