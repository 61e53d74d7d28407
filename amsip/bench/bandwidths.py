"""The paper's table of bandwidths beside ours."""

import argparse
import math
import time

from amsip.bandwidths import dimension_bandwidth, log_bandwidth, median_bandwidth
from amsip.bench.base import record, table
from amsip.problems import toys

FLOW_RANK = 32
FLOW_PRINTED = 5.6569
DARCY_DRAWS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This bench takes no options.

    Example:
        >>> add_arguments(argparse.ArgumentParser())
    """
    parser.description = "Recompute the bandwidths of the paper's table, from its rule and its seeds."


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """One row a target: the paper's value, ours, and whether they agree to the printed digits.

    Example:
        >>> run(argparse.Namespace())["exact"]  # doctest: +SKIP
        10
    """
    started = time.perf_counter()
    rows = [_row(toy) for toy in (*toys.paper_toys(), toys.tomography_latent())]
    rows.append(_compare("tomography (flow)", "sqrt(32)", FLOW_PRINTED, dimension_bandwidth(FLOW_RANK)))
    rows.append(_darcy())
    exact = sum(row["agrees"] == "to four digits" for row in rows)
    return record("python -m amsip bench bandwidths", started, {"rows": rows, "exact": exact})


def render(result: dict) -> str:
    """The table, for a terminal.

    Example:
        >>> render({"rows": [], "exact": 0}).splitlines()[-1]
        '0 of 0 agree to four digits.'
    """
    rows = [
        (r["target"], r["rule"], f"{r['paper']:.4f}", f"{r['ours']:.4f}", r["agrees"], _shown(r.get("plain_median")))
        for r in result["rows"]
    ]
    header = ("target", "rule", "paper", "ours", "agrees", "plain median")
    return f"{table(header, rows)}\n\n{result['exact']} of {len(rows)} agree to four digits."


def _row(toy: toys.Toy) -> dict:
    assert toy.printed is not None
    row = _compare(toy.name, "median / (2 ln(N+1))", toy.printed, toy.bandwidth)
    row["plain_median"] = float(median_bandwidth(toy.draws(toys.BANDWIDTH_DRAWS, toys.BANDWIDTH_SEED)))
    return row


def _compare(target: str, rule: str, paper: float, ours: float) -> dict:
    agrees = "to four digits" if f"{ours:.4f}" == f"{paper:.4f}" else f"off by {ours - paper:+.4f}"
    return {"target": target, "rule": rule, "paper": paper, "ours": ours, "agrees": agrees}


def _darcy() -> dict:
    """The groundwater bandwidth comes from draws the paper does not fix, so it is compared with its sampling error."""
    toy = toys.darcy_latent()
    assert toy.printed is not None
    values = [float(log_bandwidth(toy.draws(toys.BANDWIDTH_DRAWS, seed))) for seed in range(DARCY_DRAWS)]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    row = _compare(toy.name, "median / (2 ln(N+1))", toy.printed, mean)
    row["sampling_error"] = spread
    row["agrees"] = f"{(toy.printed - mean) / spread:+.1f} sampling errors ({spread:.4f})"
    return row


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
