"""The paper's table of bandwidths beside ours.

amsip bench bandwidths
amsip bench bandwidths --json bandwidths.json --pages docs
"""

import argparse
import math
import time
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bandwidths import dimension_bandwidth, log_bandwidth, median_bandwidth
from amsip.bench.base import markdown, origin, record, table
from amsip.problems import toys

FLOW_RANK = 32
FLOW_PRINTED = 5.6569
DARCY_DRAWS = 12
RULE = "sqrt(median r^2 / (2 ln(N+1)))"
HEADER = ("target", "rule", "paper", "ours", "agrees", "plain median")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args([]).pages is None
        True
    """
    parser.description = "Recompute the bandwidths of the paper's table, from its rule and its seeds."
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write bandwidths.md here")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """One row a target: the paper's value, ours, and whether they agree to the printed digits."""
    started = time.perf_counter()
    rows = [_row(toy) for toy in (*toys.paper_toys(), toys.tomography_latent())]
    rows.append(_compare("tomography (flow)", "sqrt(32)", FLOW_PRINTED, dimension_bandwidth(FLOW_RANK)))
    rows.append(_darcy())
    exact = sum(row["agrees"] == "to four digits" for row in rows)
    result = record("python -m amsip bench bandwidths", started, {"rows": rows, "exact": exact})
    if arguments.pages is not None:
        write_atomically(arguments.pages / "bandwidths.md", page(result).encode())
    return result


def render(result: dict) -> str:
    """The table, for a terminal.

    Example:
        >>> render({"rows": [], "exact": 0}).splitlines()[-1]
        '0 of 0 agree to four digits.'
    """
    return f"{table(HEADER, _cells(result))}\n\n{result['exact']} of {len(result['rows'])} agree to four digits."


def page(result: dict) -> str:
    """The whole page, in Markdown."""
    opening = (
        "# The paper's bandwidths, recomputed\n\nWith N = 4,000 draws from the paper's seeds. The groundwater row "
        "depends on draws that the paper does not fix: ours is a mean over "
        f"{DARCY_DRAWS} samples, compared with its sampling error. The plain median is what the words *median "
        "heuristic* usually mean: that of the pairwise distances."
    )
    verdict = f"**{result['exact']} of {len(result['rows'])} agree to four digits.**"
    return "\n\n".join([opening, verdict, markdown(HEADER, _cells(result)), origin(result)]) + "\n"


def _cells(result: dict) -> list[tuple[str, ...]]:
    return [
        (r["target"], r["rule"], f"{r['paper']:.4f}", f"{r['ours']:.4f}", r["agrees"], _shown(r.get("plain_median")))
        for r in result["rows"]
    ]


def _row(toy: toys.Toy) -> dict:
    assert toy.printed is not None
    row = _compare(toy.name, RULE, toy.printed, toy.bandwidth)
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
    row = _compare(toy.name, RULE, toy.printed, mean)
    row["sampling_error"] = spread
    row["agrees"] = f"{abs(toy.printed - mean) / spread:.1f} sampling errors apart ({spread:.4f})"
    row["plain_median"] = mean * math.sqrt(2.0 * math.log(toys.BANDWIDTH_DRAWS + 1))
    return row


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
