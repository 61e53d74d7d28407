"""Fit a map from a configuration file; an interrupted run continues where it stopped.

    amsip train map.toml

The file names the map, the family of posteriors it is trained on and the schedule; the card of a shipped map
(`amsip maps`) names the file it was trained from. A file with a table [flow] fits the posterior of a test problem.
"""

import argparse
from pathlib import Path

from amsip import _checks


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip train`."""
    parser.add_argument("config", metavar="CONFIG.toml", type=Path, help="what to train, on what, for how long")
    parser.add_argument("--progress", action="store_true", help="show a bar (needs tqdm)")
    parser.add_argument("--restart", action="store_true", help="do not continue from a checkpoint")


def run(arguments: argparse.Namespace) -> str:
    """Train, and say what came out."""
    _checks.existing_file(arguments.config)
    # training is imported where it is used: the other verbs do not need it
    from amsip.problems.flow_training import is_flow, train_flow
    from amsip.training.runs import train_from_config

    train = train_flow if is_flow(arguments.config) else train_from_config
    log = train(arguments.config, progress=arguments.progress, resume=not arguments.restart)
    return f"{log.steps} steps in {log.seconds:.0f} s: {log.ended}"
