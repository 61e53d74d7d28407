"""fig:dq-resolution-ablation: networks that saw every budget, some of them, or one, at budgets seen and unseen."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from amsip.paper import arms
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL
from amsip.paper.base import Claim, Data, Experiment, Finding, Run, Verdict
from amsip.paper.judge import below_floor, largest_ratio, ratio_of, several, verdict_of
from amsip.paper.parts import kept
from amsip.paper.resolution import (
    FULL,
    GAUSSIAN,
    MODES,
    NETS,
    SINGLE,
    SUBSET,
    cell,
    config_of,
    file_of,
    network,
    sets_of,
)
from amsip.paper.style import DEFAULT as GREEN
from amsip.paper.style import DESCENT as BROWN
from amsip.paper.style import WARM as ORANGE
from amsip.paper.style import arm_curve, budget_axes, shared_legend
from amsip.paper.trained import weights_file
from amsip.pretrained import load_card

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {GAUSSIAN: "Gaussian, d = 2", MODES: "five modes, d = 2"}
SINGLES = tuple(name for name, seen in NETS.items() if len(seen) == 1)
# between and beyond all the budgets that any network was trained at
BETWEEN, BEYOND = 24, 96
QUICK_EVALUATED = (4, 8, 16)
LOOKS = {FULL: (BROWN, "-"), SUBSET: (ORANGE, "-"), SINGLE: (GREEN, "-"), "single-32": (GREEN, "--")}
LOOKS |= {"single-64": (GREEN, ":")}
CLOSE, WORSE = 1.25, 1.1
BOTH = "full or subset"


def compute(run: Run) -> Data:
    """A row a network and budget on each target, the floor, the per-set optimum and the universal map beside them."""
    rows = []
    for name in TITLES:
        nets = {net: network(run, name, net) for net in NETS}
        digests = {net: load_card(weights_file(run, file_of(name, net))).sha256 for net in NETS}
        for m in QUICK_EVALUATED if run.quick else (*arms.BUDGETS, BETWEEN, BEYOND):
            stamp = {"maps": digests, "sets": sets_of(run)}
            rows += kept(run, f"resolution-{name}-{m:03d}", stamp, partial(cell, run, name, m, nets))["rows"]
            run.report(f"{name}, M = {m}: done")
    return {"rows": rows, "nets": {net: list(seen) for net, seen in NETS.items()}, "steps": config_of(run).steps}


def draw(data: Data, figure: "Figure") -> None:
    """A panel a target; filled marks at budgets that a network saw, open rings where it did not."""
    figure.set_size_inches(7.6, 3.7)
    panels = figure.subplots(1, 2)
    for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
        rows = [row for row in data["rows"] if row["toy"] == name]
        budget_axes(axes, _evaluated(data), ylabel="MMD²" if axes is panels[0] else "")
        for arm in (FLOOR, REWEIGHT, FINETUNED, UNIVERSAL):
            arm_curve(axes, rows, arm)
        for net in NETS:
            _net_curve(axes, rows, net)
        axes.set_title(title)
    shared_legend(figure, panels[0], columns=3)


def headline(data: Data) -> str:
    """The result in one line."""
    worst = largest_ratio(_unseen(data, SUBSET), SUBSET)
    tracked = max(row["over_full"] for row in _unseen(data, SUBSET))
    return (
        f"At the two budgets it never saw, the subset network is at {worst['ratio']:.2f} of the floor at most, and at "
        f"{tracked:.2f} times the full-range network's score at most."
    )


def _net_curve(axes: "Axes", rows: Sequence[Data], net: str) -> None:
    colour, line = LOOKS[net]
    own = sorted((row for row in rows if row["arm"] == net), key=lambda row: row["m"])
    m, median = [row["m"] for row in own], [row["median"] for row in own]
    width = 1.5 if net in (FULL, SUBSET, SINGLE) else 0.9
    axes.plot(m, median, line, color=colour, linewidth=width, label=_called(net), zorder=3)
    for seen, face in ((True, colour), (False, "white")):
        points = [(x, y) for x, y in zip(m, median, strict=True) if (x in NETS[net]) == seen]
        if points:
            size = 4.5 if net in (FULL, SUBSET, SINGLE) else 3.0
            axes.plot(*zip(*points, strict=True), "o", color=colour, markerfacecolor=face, markersize=size, zorder=4)


def _called(net: str) -> str:
    return f"saw {', '.join(str(m) for m in NETS[net])}"


def _evaluated(data: Data) -> list[int]:
    return sorted({row["m"] for row in data["rows"]})


def _grid(data: Data, net: str) -> list[Data]:
    """A network's rows at the budgets of the paper's grid."""
    return [row for row in data["rows"] if row["arm"] == net and row["m"] in arms.BUDGETS]


def _unseen(data: Data, net: str) -> list[Data]:
    return [row for row in _grid(data, net) if row["m"] not in NETS[net]]


def _by_target(rows: Sequence[Data], key: str) -> str:
    return "; ".join(
        f"{title} {several([row[key] for row in rows if row['toy'] == name])}" for name, title in TITLES.items()
    )


def _held_out_below(data: Data) -> Finding:
    rows = _unseen(data, SUBSET)
    note = (
        f"Trained at 4, 16, 64; over the floor at the unseen budgets: {_by_target(rows, 'ratio')}; over the same "
        f"seeds reweighted, which no network is needed for: {_by_target(rows, 'over_reweight')}."
    )
    return below_floor(rows, SUBSET, note)


def _tracks(data: Data) -> Finding:
    rows = _unseen(data, SUBSET)
    worst = max(rows, key=lambda row: row["over_full"])
    low, high = worst["over_full_interval"]
    note = f"At the unseen budgets; closely means a factor of {CLOSE:g}. {_by_target(rows, 'over_full')}."
    return Finding(verdict_of(high < CLOSE, low < CLOSE), worst["over_full"], (low, high), note)


def _everywhere(data: Data) -> Finding:
    rows = [{**row, "arm": BOTH} for net in (FULL, SUBSET) for row in _grid(data, net)]
    optimum = max(
        ratio_of([row for row in data["rows"] if row["toy"] == name], FULL, FINETUNED, m)
        for name in TITLES
        for m in _evaluated(data)
    )
    note = f"Both range-trained networks, both targets; the per-set optimum is up to {optimum:.2g} times lower still."
    return below_floor(rows, BOTH, note)


def _beyond(data: Data) -> Finding:
    rows = [row for row in data["rows"] if row["arm"] == FULL and row["m"] not in NETS[FULL]]
    if not rows:
        return Finding(Verdict.UNTESTABLE, None, None, "Measured in a full run only.")
    universal = [row for row in data["rows"] if row["arm"] == UNIVERSAL and row["m"] not in NETS[FULL]]
    note = (
        f"The full-range network at M = {BETWEEN} and {BEYOND}, which no network saw: {_by_target(rows, 'ratio')}; the "
        f"universal map, which saw neither target: {_by_target(universal, 'ratio')}."
    )
    return below_floor(rows, FULL, note)


def _degrades(data: Data) -> Finding:
    rows = _unseen(data, SINGLE)
    own = [row for row in _grid(data, SINGLE) if row["m"] in NETS[SINGLE]]
    worst, near = max(rows, key=lambda row: row["over_full"]), max(row["over_full"] for row in own)
    behind = [row["over_full_interval"][0] > 1.0 for row in rows]
    note = (
        f"Trained at 16 alone. Over the full-range network: {near:.2g} at most at 16 itself; elsewhere "
        f"{_by_target(rows, 'over_full')}. Behind beyond doubt in {sum(behind)} of {len(behind)} other cells."
    )
    verdict = verdict_of(all(behind) and near <= CLOSE, any(behind))
    return Finding(verdict, worst["over_full"], tuple(worst["over_full_interval"]), note)


def _above_floor(data: Data) -> Finding:
    above = [row for row in _grid(data, SINGLE) if row["ratio_interval"][0] > 1.0]
    smallest = min(row["m"] for row in data["rows"])
    here = next(row for row in _grid(data, SINGLE) if row["toy"] == GAUSSIAN and row["m"] == smallest)
    names = ", ".join(f"{TITLES[row['toy']]} at M = {row['m']}" for row in above) or "none"
    note = (
        f"The network trained at 16 alone, over the floor on the Gaussian at M = {smallest}; cells above the floor: "
        f"{names}. Over the floor elsewhere: {_by_target(_grid(data, SINGLE), 'ratio')}."
    )
    holds = above == [here]
    return Finding(verdict_of(holds, here in above), here["ratio"], tuple(here["ratio_interval"]), note)


def _range_is_the_cause(data: Data) -> Finding:
    worse = {net: [row["over_full"] > WORSE for row in _unseen(data, net)] for net in SINGLES}
    shares = {net: sum(found) / len(found) for net, found in worse.items()}
    note = (
        f"Share of the unseen cells in which a network of one budget scores more than {WORSE:g} times the full-range "
        f"one, least of the three: {'; '.join(f'{_called(net)}: {share:.0%}' for net, share in shares.items())}. Below "
        "the floor all the same in "
        + ", ".join(f"{sum(row['ratio'] < 1.0 for row in _unseen(data, n))} of {len(worse[n])}" for n in SINGLES)
        + ": the weights are solved for at any budget, whatever the network. Over reweighted seeds, at most: "
        + ", ".join(f"{max(row['over_reweight'] for row in _unseen(data, n)):.2g}" for n in SINGLES)
        + "."
    )
    least = min(shares.values())
    return Finding(verdict_of(least > 0.9, max(shares.values()) > 0.5), least, None, note)


PLACE = "section 8.4, fig:dq-resolution-ablation"
EXPERIMENT = Experiment(
    label="dq-resolution-ablation",
    title="One network a range of budgets, at budgets seen (filled) and unseen (open)",
    minutes=30.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "resolution-unseen-below-floor",
            "A network trained without two interior budgets is below the floor at exactly these.",
            PLACE,
            "largest ratio of medians at the unseen budgets, two targets",
            _held_out_below,
        ),
        Claim(
            "resolution-subset-tracks-full",
            "There it tracks the network that saw them closely.",
            PLACE,
            "largest ratio of medians, subset over full range, at the unseen budgets",
            _tracks,
        ),
        Claim(
            "resolution-range-below-everywhere",
            "Networks trained over a range are below the floor over the whole grid.",
            PLACE,
            "largest ratio of medians, full and subset, all budgets",
            _everywhere,
        ),
        Claim(
            "resolution-beyond-the-grid",
            "One network serves node counts that no training saw, between and beyond its own.",
            "section 8.4, appendix C.1",
            f"largest ratio of medians at M = {BETWEEN} and {BEYOND}",
            _beyond,
        ),
        Claim(
            "resolution-single-degrades",
            "A network of one budget competes near it and falls behind away from it.",
            PLACE,
            "largest ratio of medians, trained at 16 alone over full range",
            _degrades,
        ),
        Claim(
            "resolution-single-above-floor",
            "That network is above the floor on the Gaussian at the fewest nodes, and nowhere else.",
            PLACE,
            "its ratio to the floor at M = 4 on the Gaussian",
            _above_floor,
        ),
        Claim(
            "resolution-range-not-architecture",
            "Generality in M comes from training over a range, not from the architecture.",
            PLACE,
            "unseen cells in which networks of one budget are behind",
            _range_is_the_cause,
        ),
    ),
)
