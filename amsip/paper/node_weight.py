"""fig:node-weight: which nodes are weighted up, and which down."""

from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.paper import arms
from amsip.paper.arms import WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.judge import verdict_of
from amsip.paper.parts import kept
from amsip.paper.style import density, plane
from amsip.paper.teaser import BOX, banana_grid, banana_log_density
from amsip.paper.toy_cells import BANANA, node_map_of, target
from amsip.paper.toy_weights import fresh_seeds
from amsip.paper.trained import toy_digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIXTURE, SEPARATION = "mixture-10", 8.0 * 2.0**0.5
M, QUICK_M = 64, 16
SETS, QUICK_SETS = 128, 8
MIXTURE_BOX = (-4.0, 17.5, -6.0, 6.0)
GRID = 90
Z95 = 1.96
# a node is weighted down below half of the equal weight; few such nodes on the ridge are a quarter of them
DOWN, FEW, RELATED = 0.5, 0.25, 0.3


def compute(run: Run) -> Data:
    """One emission of each target to draw; over many sets, how weights go with the density and with the modes."""
    data: Data = {"m": QUICK_M if run.quick else M, "banana_grid": banana_grid(), "mixture_grid": _mixture_grid()}
    for name in (BANANA, MIXTURE):
        node_map = node_map_of(run, name, WARM)
        stamp = {"map": toy_digest(run, name), "sets": QUICK_SETS if run.quick else SETS, "down": DOWN}
        data[name] = kept(run, f"{name}-node-weights", stamp, partial(_emissions, run, name, node_map))
    return data


def draw(data: Data, figure: "Figure") -> None:
    """The two planes, nodes coloured by M w - 1."""
    from matplotlib.colors import TwoSlopeNorm

    figure.set_size_inches(7.4, 3.2)
    panels = figure.subplots(1, 2)
    looks = (
        (BANANA, "banana", data["banana_grid"], BOX),
        (MIXTURE, "mixture, d = 10 (two coordinates)", data["mixture_grid"], MIXTURE_BOX),
    )
    norm = TwoSlopeNorm(0.0, -1.0, 1.0)
    for axes, (name, title, grid, box) in zip(panels, looks, strict=True):
        density(axes, grid)
        x, y = zip(*(node[:2] for node in data[name]["nodes"]), strict=True)
        shade = [data["m"] * weight - 1.0 for weight in data[name]["weights"]]
        marks = axes.scatter(x, y, c=shade, cmap="RdYlBu_r", norm=norm, s=30, edgecolors="#444444", linewidths=0.5)
        plane(axes)
        axes.set_xlim(box[:2])
        axes.set_ylim(box[2:])
        axes.set_title(title)
    figure.colorbar(marks, ax=panels, label="$M w_j - 1$", shrink=0.9, extend="both")


def headline(data: Data) -> str:
    """The result in one line."""
    found = data[BANANA]["rank"]
    return (
        f"Rank correlation of weight and density on the banana: {found['mean']:.2f} over {found['sets']} sets; "
        f"the mixture's tighter mode has {data[MIXTURE]['tight_share']['mean']:.1%} of the weight."
    )


def rank_correlation(first: Float[Tensor, "r m"], second: Float[Tensor, "r m"]) -> Float[Tensor, "r"]:
    """Spearman's correlation along the last axis, for values without ties.

    Example:
        >>> rank_correlation(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.0, 5.0, 6.0]])).item()
        1.0
    """
    ranks = [values.argsort(-1).argsort(-1).double() for values in (first, second)]
    a, b = (rank - rank.mean(-1, keepdim=True) for rank in ranks)
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()


def _emissions(run: Run, name: str, node_map: arms.NodeMap | None) -> Data:
    toy, embedding = target(run, name)
    seeds = fresh_seeds(toy, QUICK_M if run.quick else M, QUICK_SETS if run.quick else SETS)
    found = arms.compare(seeds, embedding, {WARM: node_map})[WARM]
    nodes, weights = found["nodes"], found["weights"]
    data: Data = {"nodes": nodes[0, :, :2], "weights": weights[0], "least": weights.min()}
    if name == BANANA:
        heights = banana_log_density(nodes)
        return data | {"rank": _spread(rank_correlation(weights, heights)), "ridge": _on_the_ridge(weights, heights)}
    tight = nodes[..., 0] < SEPARATION / 2.0
    in_tight = (weights * tight).sum(-1) / tight.sum(-1)
    in_wide = (weights * ~tight).sum(-1) / (~tight).sum(-1)
    shares = {"tight_share": _spread((weights * tight).sum(-1)), "favour": _spread(in_tight / in_wide)}
    return data | shares | {"negative": (weights < 0).double().mean()}


def _on_the_ridge(weights: Float[Tensor, "r m"], heights: Float[Tensor, "r m"]) -> Data:
    """Which nodes are up- and down-weighted: those on the ridge, the denser half of a set's nodes, and the others."""
    scaled, dense = weights.shape[-1] * weights, heights >= heights.median(-1, keepdim=True).values
    down = scaled < DOWN
    return {
        "up_on_it": (scaled[dense] > 1.0).double().mean(),
        "up_off_it": (scaled[~dense] > 1.0).double().mean(),
        "down": down.double().mean(),
        "down_on_it": dense[down].double().mean(),
    }


def _spread(values: Float[Tensor, "r"]) -> Data:
    return {"mean": values.mean(), "error": values.std() / len(values) ** 0.5, "sets": len(values)}


def _mixture_grid() -> Data:
    """The density in the first two coordinates."""
    x, y = torch.linspace(*MIXTURE_BOX[:2], GRID), torch.linspace(*MIXTURE_BOX[2:], GRID)
    points = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    tight = torch.exp(-points.square().sum(-1)) / 0.5
    wide = torch.exp(-(points - torch.tensor([SEPARATION, 0.0])).square().sum(-1) / 4.0) / 2.0
    return {"x": x, "y": y, "values": (tight + wide).mul(1e4).round() / 1e4}


def _interval(found: Data) -> tuple[float, float]:
    return found["mean"] - Z95 * found["error"], found["mean"] + Z95 * found["error"]


def _ridge(data: Data) -> Finding:
    found = data[BANANA]["rank"]
    low, high = _interval(found)
    note = f"Mean rank correlation of weight with density over {found['sets']} sets of {data['m']} nodes."
    ridge = data[BANANA]["ridge"]
    note += (
        f" On the ridge, the denser half of a set's nodes, {ridge['up_on_it']:.0%} are above the equal weight, off it "
        f"{ridge['up_off_it']:.0%}. Of the {ridge['down']:.0%} of nodes below half of the equal weight "
        f"{ridge['down_on_it']:.0%} are on the ridge: crowded there, and not in a tail."
    )
    sorted_out = low > RELATED and ridge["down_on_it"] < FEW
    return Finding(verdict_of(sorted_out, low > 0.0), found["mean"], (low, high), note)


def _tighter(data: Data) -> Finding:
    found, negative = data[MIXTURE]["favour"], data[MIXTURE]["negative"]
    low, high = _interval(found)
    note = (
        f"Mean weight of a node in the tighter mode over that in the wider one; {negative:.2%} of the weights are "
        f"negative; the tighter mode holds {data[MIXTURE]['tight_share']['mean']:.1%} of all (half is right)."
    )
    return Finding(verdict_of(low > 1.0 and negative < 0.001, low > 1.0), found["mean"], (low, high), note)


PLACE = "section 8.2, fig:node-weight"
EXPERIMENT = Experiment(
    label="node-weight",
    title="Nodes on the density, coloured by weight",
    minutes=2.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "nodes-ridge-up-tails-down",
            "Nodes on the ridge are weighted up, nodes in the tails down.",
            PLACE,
            "rank correlation of weight and density on the banana; where nodes below half the equal weight are",
            _ridge,
        ),
        Claim(
            "nodes-tighter-mode-favoured",
            "On the mixture weights stay positive and favour the tighter mode.",
            PLACE,
            "mean weight of a node in the tighter mode over that in the wider",
            _tighter,
        ),
    ),
)
