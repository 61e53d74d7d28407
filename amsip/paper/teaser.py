"""fig:teaser: draws of the banana beside the nodes they become, and the discrepancy against the number of nodes."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amsip.paper import arms
from amsip.paper.arms import FLOOR, WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.judge import below_floor, verdict_of
from amsip.paper.style import FLOOR as BLUE
from amsip.paper.style import SOFT, arm_curve, budget_axes, density, plane
from amsip.paper.style import WARM as ORANGE
from amsip.paper.toy_cells import BANANA, POOL, node_map_of, sets_of, target, toy_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

M = 16
BOX = (-9.0, 9.0, -5.0, 8.0)
GRID = 90
Z95 = 1.96


def compute(run: Run) -> Data:
    """The cells of the banana, one emission to draw, and how dense the reference is where nodes end up."""
    rows = toy_rows(run, BANANA, (FLOOR, WARM))
    toy, embedding = target(run, BANANA)
    seeds = toy.seed_sets(M, sets_of(run, BANANA, WARM))
    found = arms.compare(seeds, embedding, {WARM: node_map_of(run, BANANA, WARM)})[WARM]
    gains = banana_log_density(found["nodes"]).mean(-1) - banana_log_density(seeds).mean(-1)
    closer = off_the_ridge(found["nodes"]).mean(-1) - off_the_ridge(seeds).mean(-1)
    return {
        "rows": rows,
        "grid": banana_grid(),
        "seeds": seeds[0],
        "nodes": found["nodes"][0],
        "weights": found["weights"][0],
        "density_gain": {"mean": gains.mean(), "error": gains.std() / len(gains) ** 0.5, "sets": len(gains)},
        "off_ridge": {
            "draws": off_the_ridge(seeds).mean(),
            "nodes": off_the_ridge(found["nodes"]).mean(),
            "error": closer.std() / len(closer) ** 0.5,
        },
    }


def draw(data: Data, figure: "Figure") -> None:
    """The plane to the left, the curves to the right."""
    figure.set_size_inches(7.0, 3.1)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
    density(left, data["grid"])
    for seed, node in zip(data["seeds"], data["nodes"], strict=True):
        left.plot(*zip(seed, node, strict=True), color="#555555", linewidth=0.8, zorder=2)
    size = [max(8.0, 26.0 * M * weight) for weight in data["weights"]]
    left.scatter(
        *zip(*data["seeds"], strict=True),
        s=26,
        facecolors="white",
        edgecolors=BLUE,
        zorder=3,
        label="draws",
    )
    left.scatter(*zip(*data["nodes"], strict=True), s=size, color=ORANGE, edgecolors="white", zorder=4, label="nodes")
    plane(left)
    left.set_xlim(BOX[:2])
    left.set_ylim(BOX[2:])
    left.legend(loc="upper center", ncols=2, handletextpad=0.2)
    left.set_title(f"(a) M = {M}, area by weight")
    budget_axes(right, [row["m"] for row in data["rows"] if row["arm"] == FLOOR], ylabel="MMD²")
    for arm in (FLOOR, WARM):
        arm_curve(right, data["rows"], arm, floor=arm == WARM)
    right.set_title("(b) the banana")
    right.legend(loc="lower left")
    left.set_facecolor("white")
    left.spines[:].set_color(SOFT)


def headline(data: Data) -> str:
    """The result in one line."""
    ratios = ", ".join(f"{row['ratio']:.2g}" for row in data["rows"] if row["arm"] == WARM)
    return f"On the banana one pass is at {ratios} of the floor, from the smallest M to the largest."


def banana_log_density(points: Tensor) -> Tensor:
    """Of x1 ~ N(0, 9), x2 = t + (x1^2 - 9) / 10, t ~ N(0, 1), up to a constant."""
    return -points[..., 0].square() / 18.0 - 0.5 * off_the_ridge(points).square()


def off_the_ridge(points: Tensor) -> Tensor:
    """The distance |t| to the crest of the banana, across it.

    Example:
        >>> off_the_ridge(torch.tensor([[3.0, 0.5]]))
        tensor([0.5000])
    """
    return (points[..., 1] - 0.1 * (points[..., 0].square() - 9.0)).abs()


def banana_grid() -> Data:
    """The density on a grid."""
    x, y = torch.linspace(*BOX[:2], GRID), torch.linspace(*BOX[2:], GRID)
    points = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    return {"x": x, "y": y, "values": banana_log_density(points).exp().mul(1e4).round() / 1e4}


def _below(data: Data) -> Finding:
    shares = [row["below_floor"] for row in data["rows"] if row["arm"] == WARM]
    note = f"{min(shares):.0%} of paired sets are below in the worst column. {POOL}"
    return below_floor(data["rows"], WARM, note)


def _ridge(data: Data) -> Finding:
    gain, error = data["density_gain"]["mean"], data["density_gain"]["error"]
    interval = (gain - Z95 * error, gain + Z95 * error)
    off = data["off_ridge"]
    note = (
        f"Mean log density of the nodes minus that of their seeds, over {data['density_gain']['sets']} sets, M = {M}. "
        f"Mean distance from the crest: draws {off['draws']:.2f}, nodes {off['nodes']:.2f}, its change known to "
        f"{Z95 * off['error']:.2g}. Draws are of the reference and miss nothing on average; nodes spread less."
    )
    nearer = off["draws"] - off["nodes"] > Z95 * off["error"]
    return Finding(verdict_of(interval[0] > 0.0 and nearer, interval[0] > 0.0), gain, interval, note)


EXPERIMENT = Experiment(
    label="teaser",
    title="Draws of the banana, the nodes they become, and what that gains",
    minutes=3.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "teaser-below-floor-at-every-budget",
            "On the banana the same network is below the floor at every budget.",
            "fig:teaser",
            "largest ratio of medians over the five budgets",
            _below,
        ),
        Claim(
            "teaser-pulled-onto-the-ridge",
            "The designed nodes are pulled onto the high-mass ridge.",
            "fig:teaser",
            "mean log density at the nodes minus that at their seeds; distance from the crest",
            _ridge,
        ),
    ),
)
