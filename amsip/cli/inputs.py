"""What several verbs read: files of draws, kernels and maps by name."""

import argparse
from typing import TypedDict

from amsip.bandwidths import dimension_bandwidth, log_bandwidth
from amsip.defaults import default_kernel
from amsip.draws import Draws, read_draws
from amsip.kernels import Kernel, SquaredExponential, Whitened
from amsip.maps.base import NodeMap
from amsip.maps.descent import Descent
from amsip.pretrained import load_map
from amsip.references.samples import Samples
from amsip.whitening import Whitening

KERNELS = ("default", "log-rule", "dimension")
MAPS = ("universal", "reweight", "descent")


class MapArgument(TypedDict, total=False):
    """The `node_map` of `quadrature`, or nothing for the library's own."""

    node_map: NodeMap | None


def add_draws_arguments(parser: argparse.ArgumentParser) -> None:
    """A file of draws and how to read it."""
    parser.add_argument("draws", metavar="DRAWS", help="posterior draws: .npz, .npy, .csv or .nc (ArviZ)")
    parser.add_argument(
        "--columns", metavar="A,B,...", default="", help="parameters to keep; A;B where names hold commas"
    )
    parser.add_argument("--weights-column", metavar="NAME", help="the column that holds sample weights")
    parser.add_argument(
        "--leading", choices=("chains", "queries"), help="what the first axis of a three-dimensional array counts"
    )


def draws_of(arguments: argparse.Namespace) -> Draws:
    """The draws that the arguments name."""
    columns = [name for name in arguments.columns.split(";" if ";" in arguments.columns else ",") if name]
    return read_draws(
        arguments.draws, columns=columns, weights_column=arguments.weights_column, leading=arguments.leading
    )


def named_kernel(name: str, reference: Samples) -> Kernel:
    """The library's kernel, the paper's bandwidth rule, or its whitened square-root-of-dimension kernel."""
    if name == "log-rule":
        return SquaredExponential(log_bandwidth(reference.atoms))
    if name == "dimension":
        chart = Whitening.of_moments(*reference.moments())
        return Whitened(SquaredExponential(dimension_bandwidth(reference.dim)), chart)
    return default_kernel(reference)


def named_map(name: str) -> MapArgument:
    """The library's map, none, per-query descent from the draws, or trained weights by name or file."""
    match name:
        case "universal":
            return {}
        case "reweight":
            return {"node_map": None}
        case "descent":
            return {"node_map": Descent()}
        case _:
            return {"node_map": load_map(name)}
