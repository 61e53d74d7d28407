"""Turn a file of posterior draws into a quadrature rule: a few nodes with signed weights.

Run your expensive model at the nodes only, then average its outputs with the weights:

    amsip quadrature draws.csv -m 32 -o rule.npz

    import amsip
    rule = amsip.load_rule("rule.npz")
    answer = rule.expect(model)          # model: (32, d) parameters -> (32,) or (32, k) outputs
"""

import argparse

import torch

import amsip
from amsip.cli.inputs import KERNELS, MAPS, add_draws_arguments, draws_of, named_kernel, named_map
from amsip.cli.tables import discrepancy_lines, moments_table
from amsip.rules import EMISSIONS, Rule


def configure(parser: argparse.ArgumentParser) -> None:
    """The arguments of `amsip quadrature`."""
    add_draws_arguments(parser)
    parser.add_argument("-m", "--nodes", type=int, default=32, metavar="M", help="number of nodes (default: 32)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the rule here (.npz)")
    parser.add_argument("--map", default=MAPS[0], help=f"{', '.join(MAPS)}, or your own weights (default: {MAPS[0]})")
    parser.add_argument("--kernel", choices=KERNELS, default=KERNELS[0], help=f"default: {KERNELS[0]}")
    parser.add_argument("--rng-seed", type=int, default=0, metavar="N", help="which draws the nodes start from")


def run(arguments: argparse.Namespace) -> str:
    """Make the rule, save it, describe it."""
    draws = draws_of(arguments)
    reference = amsip.Samples(draws.values, draws.weights)
    generator = torch.Generator().manual_seed(arguments.rng_seed)
    rule = amsip.quadrature(
        reference,
        arguments.nodes,
        kernel=named_kernel(arguments.kernel, reference),
        generator=generator,
        **named_map(arguments.map),
    )
    lines = [f"{arguments.nodes} nodes for {draws.values.shape[-2]} draws of {len(draws.names)} parameters"]
    if rule.nodes.ndim == 2:
        lines += ["", moments_table(rule, reference, draws.names), ""]
    lines += _conditioning(rule) + discrepancy_lines(rule, reference)
    if arguments.output:
        notes = {"kernel": arguments.kernel, "map": arguments.map, "rng_seed": arguments.rng_seed}
        amsip.save_rule(rule, arguments.output, names=draws.names, notes=notes)
        lines += ["", f"wrote {arguments.output}"]
    return "\n".join(lines)


def _conditioning(rule: Rule) -> list[str]:
    m = rule.weights.shape[-1]
    kept = {} if rule.emission is None else {name: int((rule.emission == i).sum()) for i, name in enumerate(EMISSIONS)}
    shown = ", ".join(name if rule.nodes.ndim == 2 else f"{n} x {name}" for name, n in kept.items() if n)
    return [
        f"kept              {shown}",
        f"effective nodes   {rule.ess.mean():.1f} of {m} ({100 * rule.negative_share.mean():.0f}% negative weights)",
    ]
