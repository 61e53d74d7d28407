"""fig:weight-ess: the effective sample size of the weights, with the nodes moved and without."""

import itertools
from functools import partial
from typing import TYPE_CHECKING

from amsip.paper import arms
from amsip.paper.arms import FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.judge import several, verdict_of
from amsip.paper.parts import kept
from amsip.paper.style import REWEIGHT as TEAL
from amsip.paper.style import WARM as ORANGE
from amsip.paper.toy_cells import FEW_SETS, MEANS, QUICK_SETS, target
from amsip.paper.toy_weights import LARGEST, QUICK_LARGEST, TARGETS, fresh_seeds, of, toys_in, weight_rows
from amsip.pretrained import load_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODERATE = ("gaussian-2", "banana", "mixture-10")
HEALTHY = tuple(name for name in TARGETS if name not in MODERATE)
COLLAPSING = ("gaussian-2", "banana")
NEAR_COUNT, DEGENERATE, LEAST_SCORE = 0.8, 0.1, 0.5


def compute(run: Run) -> Data:
    """The rows of every target."""
    rows = [{k: v for k, v in row.items() if k != "histogram"} for row in weight_rows(run)]
    stamp = {"sets": FEW_SETS, "map": load_card("universal").sha256}
    beside = {
        name: kept(run, f"{name}-weights-beside", stamp, partial(_beside, run, name))
        for name in toys_in(rows)
        if name in HEALTHY
    }
    return {"rows": rows, "beside": beside}


def draw(data: Data, figure: "Figure") -> None:
    """Bars at the largest budget, and the two arms against M where reweighting collapses."""
    figure.set_size_inches(8.4, 3.1)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
    rows, names = data["rows"], toys_in(data["rows"])
    for shift, arm, colour, label in ((-0.2, REWEIGHT, TEAL, "reweight only"), (0.2, WARM, ORANGE, "moved, deployed")):
        last = [of(rows, name, arm)[-1] for name in names]
        spread = [[abs(row["ess"] - row["ess_quartiles"][side]) for row in last] for side in (0, 1)]
        places = [place + shift for place in range(len(names))]
        ess = [row["ess"] for row in last]
        left.bar(places, ess, 0.38, color=colour, label=label, yerr=spread, error_kw={"linewidth": 0.8})
    left.set_xticks(range(len(names)), [TARGETS[name].replace(" ", "\n") for name in names], fontsize=6.5)
    left.axhline(1.0, color="#999999", linestyle=":", linewidth=0.9)
    left.set_ylim(0, 1.3)
    left.set_ylabel("effective sample size / M")
    left.set_title(f"(a) M = {max(row['m'] for row in rows)}")
    left.legend(loc="upper left", ncols=2)
    for name, line in zip([name for name in MODERATE if name in names], ("-", "--", ":"), strict=False):
        for arm, colour, marker in ((REWEIGHT, TEAL, "o"), (WARM, ORANGE, "s")):
            own = of(rows, name, arm)
            text = TARGETS[name] if arm == WARM else None
            right.plot([r["m"] for r in own], [r["ess"] for r in own], line, color=colour, marker=marker, label=text)
    right.set_xscale("log", base=2)
    budgets = sorted({row["m"] for row in rows})
    right.set_xticks(budgets, [str(m) for m in budgets])
    right.set_ylim(0, 1.05)
    right.set_xlabel("number of nodes M")
    right.set_ylabel("effective sample size / M")
    right.set_title("(b) the three hard ones")
    right.legend(loc="lower left", title="orange moved, teal not", title_fontsize=7)


def headline(data: Data) -> str:
    """The result in one line."""
    shown = ", ".join(
        f"{TARGETS[name]} {of(data['rows'], name, WARM)[-1]['ess']:.2f}" for name in toys_in(data["rows"])
    )
    return f"Effective sample size over M of the deployed rule at the largest M: {shown}."


def _beside(run: Run, name: str) -> Data:
    """The universal map at the largest budget, on the first of the same seeds."""
    toy, embedding = target(run, name)
    seeds = fresh_seeds(toy, QUICK_LARGEST if run.quick else LARGEST, QUICK_SETS if run.quick else FEW_SETS)
    found = arms.compare(seeds, embedding, {FLOOR: None, UNIVERSAL: arms.BESIDE[UNIVERSAL]})
    return arms.summary(UNIVERSAL, found[UNIVERSAL], found[FLOOR]["scores"])


def _last(data: Data, names: tuple[str, ...], arm: str) -> list[Data]:
    return [of(data["rows"], name, arm)[-1] for name in names if name in toys_in(data["rows"])]


def _healthy(data: Data) -> Finding:
    rows = _last(data, HEALTHY, WARM)
    beside = [data["beside"][row["toy"]] for row in rows]
    worst = min(rows, key=lambda row: row["ess"])
    note = (
        f"Least over {len(rows)} targets at the largest M ({TARGETS[worst['toy']]}), near meaning {NEAR_COUNT:g}; "
        f"interval: quartiles over sets. All: {several([row['ess'] for row in rows])}; scores over the floor "
        f"{several([row['ratio'] for row in rows])}. The universal map, first {FEW_SETS} of the sets: "
        f"{several([row['ess'] for row in beside])}; scores {several([row['ratio'] for row in beside])}."
    )
    high_enough = worst["ess"] >= NEAR_COUNT
    return Finding(
        verdict_of(high_enough, worst["ess"] > LEAST_SCORE), worst["ess"], tuple(worst["ess_quartiles"]), note
    )


def _moderate(data: Data) -> Finding:
    rows = _last(data, MODERATE, WARM)
    worst = min(rows, key=lambda row: row["ess"])
    note = (
        "At the largest M: "
        + ", ".join(f"{TARGETS[r['toy']]} {r['ess']:.2f} (score {r['ratio']:.2g} of the floor)" for r in rows)
        + f"; degenerate would be under {DEGENERATE:g}. {MEANS}"
    )
    holds = all(DEGENERATE < row["ess"] < 0.9 and row["ratio_interval"][1] < 1.0 for row in rows)
    return Finding(verdict_of(holds, worst["ess"] > DEGENERATE), worst["ess"], tuple(worst["ess_quartiles"]), note)


def _repair(data: Data) -> Finding:
    pairs = [
        (before, after)
        for before, after in zip(_last(data, COLLAPSING, REWEIGHT), _last(data, COLLAPSING, WARM), strict=True)
    ]
    gains = [after["ess"] / before["ess"] for before, after in pairs]
    note = "At the largest M, from reweighted to moved: " + "; ".join(
        f"{TARGETS[before['toy']]} {before['ess']:.2g} to {after['ess']:.2g}" for before, after in pairs
    )
    healthy = all(after["ess"] > DEGENERATE for _, after in pairs)
    return Finding(verdict_of(min(gains) > 2.0 and healthy, min(gains) > 1.0), min(gains), None, note + ".")


def _tightens(data: Data) -> Finding:
    drops = {name: [row["ess"] for row in of(data["rows"], name, WARM)] for name in toys_in(data["rows"])}
    falling = sum(all(a >= b - 0.02 for a, b in itertools.pairwise(values)) for values in drops.values())
    note = (
        f"Targets whose effective sample size falls with M at every step, of {len(drops)}; a rise of 0.02 is forgiven."
    )
    return Finding(verdict_of(falling == len(drops), 2 * falling > len(drops)), float(falling), None, note)


PLACE = "section 8.1, fig:weight-ess"
EXPERIMENT = Experiment(
    label="weight-ess",
    title="Effective sample size of the weights, moved and not",
    minutes=8.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "ess-near-the-count",
            "The Gaussians beyond d = 2 and the larger mixtures keep it near the node count.",
            PLACE,
            "least effective sample size over M of the deployed rule at M = 64",
            _healthy,
        ),
        Claim(
            "ess-three-moderate",
            "Gaussian d = 2, banana and mixture d = 10 sit at a moderate share and still win.",
            PLACE,
            "least effective sample size over M of the three",
            _moderate,
        ),
        Claim(
            "ess-moving-repairs",
            "Where reweighting alone collapses, moving the nodes repairs the conditioning.",
            "section 8.2, fig:weight-ess",
            "effective sample size, moved over reweighted",
            _repair,
        ),
        Claim(
            "ess-tightens-with-m",
            "Conditioning is best at few nodes and tightens as M grows.",
            "section 8.1",
            "targets on which it falls with M throughout",
            _tightens,
        ),
    ),
)
