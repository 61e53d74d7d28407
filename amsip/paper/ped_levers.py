"""fig:ped-levers: draws, draws with weights, and nodes that moved, on a line."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import witness
from amsip.paper import arms
from amsip.paper.arms import DESCENT, FINETUNED, FLOOR, REWEIGHT, UNIVERSAL
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.judge import several, verdict_of
from amsip.paper.line import (
    MEANS,
    STDS,
    density_with_nodes,
    drawn_points,
    line_density,
    line_embedding,
    line_seeds,
    line_toy,
    plain_set,
)
from amsip.paper.style import FLOOR as BLUE
from amsip.paper.style import REWEIGHT as TEAL
from amsip.paper.style import WARM as ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    FLOOR: ("(a) draws, equal weights", BLUE),
    REWEIGHT: ("(b) reweighted", TEAL),
    FINETUNED: ("(c) moved and reweighted", ORANGE),
}
Z95 = 1.96


def compute(run: Run) -> Data:
    """Every arm on the same sets: scores and their order; one set, to draw; weights and density."""
    embedding, seeds, x = line_embedding(), line_seeds(run), drawn_points()
    found = arms.compare(seeds, embedding, {FLOOR: None, REWEIGHT: None, **arms.BESIDE})
    floor, drawn = found[FLOOR]["scores"], plain_set(found[REWEIGHT]["weights"])
    shown = {
        arm: {
            "nodes": part["nodes"][drawn, :, 0],
            "weights": part["weights"][drawn],
            "mmd2": part["scores"][drawn],
            "gap": witness(x[:, None], part["nodes"][drawn], part["weights"][drawn], embedding),
        }
        for arm, part in found.items()
        if arm in PANELS
    }
    scores = {arm: part["scores"] for arm, part in found.items()}
    shares = (scores[REWEIGHT] - scores[FINETUNED]) / (floor - scores[FINETUNED])
    ranks = rank_correlation(found[REWEIGHT]["weights"], line_density(seeds[..., 0]))
    density = {arm: line_density(found[arm]["nodes"][..., 0]).log().mean(-1) for arm in (FLOOR, FINETUNED, UNIVERSAL)}
    return {
        "bandwidth": line_toy().bandwidth,
        "x": x,
        "density": line_density(x),
        "shown": shown,
        "rows": [arms.summary(arm, part, floor) for arm, part in found.items()],
        "reweight_excess": (scores[REWEIGHT] - floor).max(),
        "move_excess": (scores[FINETUNED] - scores[REWEIGHT]).max(),
        "move_share": shares.quantile(torch.tensor(arms.QUARTILES, dtype=shares.dtype)),
        "move_larger": (shares > 0.5).double().mean(),
        "weights_and_density": _mean(ranks),
        "signed_sets": (found[REWEIGHT]["weights"] < 0).any(-1).double().mean(),
        "covered": {arm: _covered(found[arm]["nodes"]) for arm in (FLOOR, FINETUNED, UNIVERSAL)},
        "density_gain": {arm: _mean(density[arm] - density[FLOOR]) for arm in (FINETUNED, UNIVERSAL)},
    }


def draw(data: Data, figure: "Figure") -> None:
    """A column an arm: nodes over the density, and the gap that is left below."""
    figure.set_size_inches(7.6, 3.5)
    panels = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(1.3, 1.0))
    for (above, below), (arm, (title, colour)) in zip(panels.T, PANELS.items(), strict=True):
        part = data["shown"][arm]
        density_with_nodes(above, data, part["nodes"], part["weights"], colour)
        above.set_yticks([])
        above.set_title(title)
        below.fill_between(data["x"], part["gap"], color=colour, alpha=0.35, linewidth=0)
        below.plot(data["x"], part["gap"], color=colour, linewidth=1.0)
        below.axhline(0.0, color="#666666", linewidth=0.7)
        below.set_xlabel("x")
        below.text(0.98, 0.95, f"MMD² = {part['mmd2']:.2g}", ha="right", va="top", transform=below.transAxes)
    low, high = panels[1, 0].get_ylim()
    panels[1, 0].set_ylim(low, high + 0.25 * (high - low))
    panels[0, 0].set_ylabel("density, weight")
    panels[1, 0].set_ylabel("gap of kernel means")


def headline(data: Data) -> str:
    """The result in one line."""
    medians = {row["arm"]: row["median"] for row in data["rows"]}
    row = data["rows"][0]
    return (
        f"MMD² with {row['m']} nodes, median of {row['sets']} sets: equal weights {medians[FLOOR]:.3g}, reweighted "
        f"{medians[REWEIGHT]:.3g}, moved {medians[FINETUNED]:.3g}."
    )


def rank_correlation(first: Float[Tensor, "r m"], second: Float[Tensor, "r m"]) -> Float[Tensor, "r"]:
    """Spearman's correlation, row by row.

    Example:
        >>> rank_correlation(torch.tensor([[0.1, 0.2, 9.0]]), torch.tensor([[5.0, 6.0, 7.0]])).round(decimals=9)
        tensor([1.], dtype=torch.float64)
    """
    ranks = [values.argsort(-1).argsort(-1).double() for values in (first, second)]
    centred = [rank - rank.mean(-1, keepdim=True) for rank in ranks]
    size = centred[0].square().sum(-1).sqrt() * centred[1].square().sum(-1).sqrt()
    return (centred[0] * centred[1]).sum(-1) / size


def _covered(nodes: Tensor) -> Tensor:
    """The share of bumps that have a node within one standard deviation."""
    means, stds = (torch.tensor(values, dtype=torch.float64) for values in (MEANS, STDS))
    return ((nodes - means).abs() < stds).any(-2).double().mean()


def _mean(values: Tensor) -> Data:
    return {"mean": values.mean(), "error": values.std() / len(values) ** 0.5, "positive": (values > 0).double().mean()}


def _interval(part: Data) -> tuple[float, float]:
    return part["mean"] - Z95 * part["error"], part["mean"] + Z95 * part["error"]


def _ordered(data: Data) -> Finding:
    worst = max(data["reweight_excess"], data["move_excess"])
    ratios = {row["arm"]: row["ratio"] for row in data["rows"]}
    note = (
        f"Largest excess of a single set, reweighted over equal or moved over reweighted, of {data['rows'][0]['sets']} "
        f"sets. Moved by 150 steps of Adam from the same draws. Ratio of medians to the floor: "
        f"{several([ratios[arm] for arm in PANELS])}; universal map {ratios[UNIVERSAL]:.2g}, descent "
        f"{ratios[DESCENT]:.2g}."
    )
    return Finding(verdict_of(worst <= 1e-9), worst, None, note)


def _larger(data: Data) -> Finding:
    low, median, high = data["move_share"]
    ratios = {row["arm"]: row["ratio"] for row in data["rows"]}
    factors = 1.0 / ratios[REWEIGHT], ratios[REWEIGHT] / ratios[FINETUNED]
    note = (
        f"Share of the difference between floor and moved that is left after reweighting, median and quartiles over "
        f"sets; more than half in {data['move_larger']:.0%} of sets. In factors moving gains more: reweighting divides "
        f"the median by {factors[0]:.2g}, moving by another {factors[1]:.2g}."
    )
    return Finding(verdict_of(low > 0.5, median > 0.5 or factors[1] > factors[0]), median, (low, high), note)


def _towards_mass(data: Data) -> Finding:
    found = data["weights_and_density"]
    interval = _interval(found)
    note = (
        f"Mean over sets of the rank correlation of weight and density at the node; positive in "
        f"{found['positive']:.0%} of sets. A draw in a crowd is weighted down however high the density there: in "
        f"{data['signed_sets']:.0%} of sets one is below zero, and the drawn set is the first where none is."
    )
    return Finding(verdict_of(found["positive"] == 1.0, interval[0] > 0.0), found["mean"], interval, note)


def _onto_mass(data: Data) -> Finding:
    found, covered = data["density_gain"][FINETUNED], data["covered"]
    interval = _interval(found)
    note = (
        f"Mean log density at the nodes minus that at their draws, by 150 steps of Adam. Draws lie on the mass "
        f"already; what changes is what they cover: {covered[FLOOR]:.0%} of the bumps have a node within a standard "
        f"deviation before, {covered[FINETUNED]:.0%} after (universal map {covered[UNIVERSAL]:.0%})."
    )
    holds = interval[0] > 0.0
    return Finding(verdict_of(holds, covered[FINETUNED] > covered[FLOOR]), found["mean"], interval, note)


PLACE = "section 4.4, fig:ped-levers"
EXPERIMENT = Experiment(
    label="ped-levers",
    title="Draws, draws with weights, nodes that moved: on a line",
    minutes=0.2,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "line-levers-in-order",
            "Reweighting is never worse than equal weights, and moving as well is better still.",
            PLACE,
            "largest excess of a single set over the lever before",
            _ordered,
        ),
        Claim(
            "line-moving-is-the-larger-gain",
            "Moving is the larger of the two gains.",
            PLACE,
            "share of the descent that moving gives, set by set",
            _larger,
        ),
        Claim(
            "line-weights-follow-the-mass",
            "Reweighting puts weight where the reference has its mass.",
            PLACE,
            "rank correlation of weight and density at the draws",
            _towards_mass,
        ),
        Claim(
            "line-nodes-move-onto-the-mass",
            "Moving relocates the nodes onto the mass of the reference.",
            PLACE,
            "mean log density at the nodes minus that at the draws; share of the bumps that have a node",
            _onto_mass,
        ),
    ),
)
