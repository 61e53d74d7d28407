"""The command line: each verb is one library call and a short table."""

import argparse
import importlib
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Sequence

from amsip._checks import NumericalError

VERBS = {
    "quadrature": "turn a file of draws into a rule",
    "score": "measure a rule against draws",
    "maps": "list the trained maps that are shipped",
    "train": "fit a map from a configuration file",
    "calibrate": "fit the stated errors to a map again",
    "bench": "run a measurement",
    "reproduce": "compute a figure of the paper",
    "claims": "which sentences of the paper hold",
    "demo": "a groundwater example, as one HTML page",
}
EXPECTED = (ValueError, TypeError, OSError, ImportError, NumericalError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Arguments:
        arguments: The words after `amsip`; those of the process by default.

    Returns:
        0; or 1 after a one-line message about bad input. Wrong usage exits with 2.

    Example:
        >>> main(["score", "no-such-rule.npz", "draws.csv"])
        1
    """
    parsed = build_parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            report = parsed.run(parsed).rstrip()
        sys.stdout.write(report + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader left (`amsip ... | head`): keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.stderr.write("amsip: interrupted\n")
        return 130
    except EXPECTED as error:
        sys.stderr.write(f"amsip: {' '.join(str(error).split())}\n")
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser with every verb; a verb's module adds its own arguments and says what it runs."""
    parser = argparse.ArgumentParser(
        prog="amsip",
        description="Turn posterior samples into integrals.",
        epilog="Start with: amsip quadrature draws.csv -m 32 -o rule.npz",
    )
    parser.add_argument("--version", action="version", version=f"amsip {importlib.metadata.version('amsip')}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb, summary in VERBS.items():
        module = importlib.import_module(f"amsip.cli.{verb}")
        own = verbs.add_parser(
            verb, help=summary, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(own)
        own.set_defaults(run=module.run)
    return parser


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    sys.stderr.write(f"amsip: warning: {' '.join(str(message).split())}\n")
