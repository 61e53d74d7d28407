"""Run a measurement and print its table.

    amsip bench bandwidths
    amsip bench toys --quick
    amsip bench posteriors --json posteriors.json

`amsip bench NAME --help` lists what one of them takes.
"""

import argparse
import importlib
import json
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bench import BENCHES


def configure(parser: argparse.ArgumentParser) -> None:
    """The name of a measurement; the words after it are its own."""
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="...", help="--json FILE, --quick, and its own")


def run(arguments: argparse.Namespace) -> str:
    """Run it, write the JSON where asked, render the table."""
    # only the measurement that was asked for is imported
    module = importlib.import_module(f"amsip.bench.{arguments.name}")
    parser = argparse.ArgumentParser(prog=f"amsip bench {arguments.name}", conflict_handler="resolve")
    parser.add_argument("--json", metavar="FILE", help="write the whole result here")
    parser.add_argument("--quick", action="store_true", help="a small version")
    module.add_arguments(parser)
    own = parser.parse_args(arguments.options)
    target = None if own.json is None else _writable(Path(own.json))
    result = module.run(own)
    if target is not None:
        write_atomically(target, json.dumps(result, indent=1).encode() + b"\n")
    return str(module.render(result))


def _writable(path: Path) -> Path:
    """A path whose folder exists, found out before hours of work and not after."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder '{path.parent}' to write '{path.name}' in.")
    return path
