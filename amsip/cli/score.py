"""Measure a rule against draws of the posterior, those it was made from or others held out.

    amsip score rule.npz held-out.csv

The discrepancy is the largest error of the rule over all integrands of unit size in the kernel's space; beside it
stands the one that as many plain draws have on average.
"""

import argparse
import dataclasses
from collections.abc import Sequence

import amsip
from amsip import _checks
from amsip.cli.inputs import KERNELS, add_draws_arguments, draws_of, named_kernel
from amsip.cli.tables import discrepancy_lines, moments_table
from amsip.draws import Draws


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip score`."""
    parser.add_argument("rule", metavar="RULE", help="a rule written by `amsip quadrature` or `amsip.save_rule`")
    add_draws_arguments(parser)
    parser.add_argument("--kernel", choices=KERNELS, default=KERNELS[0], help=f"default: {KERNELS[0]}")


def run(arguments: argparse.Namespace) -> str:
    """Score the rule."""
    rule = amsip.load_rule(arguments.rule)
    draws = in_order(draws_of(arguments), amsip.load_metadata(arguments.rule).names)
    _checks.same_queries(arguments.rule, rule.nodes.shape[:-2], draws.values.shape[:-2])
    _checks.same_dim(f"the nodes of {arguments.rule}", rule.nodes, draws.values.shape[-1])
    reference = amsip.Samples(draws.values.to(rule.nodes), draws.weights)
    embedding = reference.embed(named_kernel(arguments.kernel, reference))
    scored = amsip.Rule(rule.nodes, rule.weights, embedding)
    lines = [f"{rule.nodes.shape[-2]} nodes against {draws.values.shape[-2]} draws"]
    if rule.nodes.ndim == 2:
        lines += ["", moments_table(scored, reference, draws.names), ""]
    return "\n".join(lines + discrepancy_lines(scored, reference))


def in_order(draws: Draws, names: Sequence[str]) -> Draws:
    """The columns that a rule was made of, in its order, where both sides have the names."""
    if not names or not set(names) <= set(draws.names):
        return draws
    chosen = [draws.names.index(name) for name in names]
    return dataclasses.replace(draws, values=draws.values[..., chosen], names=tuple(names))
