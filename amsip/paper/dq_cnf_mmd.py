"""fig:dq-cnf-mmd: the discrepancy against the number of nodes on posteriors that a trained flow draws."""

from typing import TYPE_CHECKING

from amsip.paper import flow_findings as findings
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Claim, Data, Experiment, Run
from amsip.paper.flow_cells import Charted, budgets_of, held_out, rows_of
from amsip.paper.flow_controls import coverage, deflation, outside, shape
from amsip.paper.flow_maps import PAPER, SHORT, curve
from amsip.paper.flow_posterior import KERNEL, RANK, SEEDS, evaluation, latent, sizes_of
from amsip.paper.flow_score import refinement
from amsip.paper.judge import several
from amsip.paper.parts import kept
from amsip.paper.style import FLOOR as BLUE
from amsip.paper.style import INK, arm_curve, budget_axes
from amsip.paper.style import WARM as ORANGE
from amsip.pretrained import load_card
from amsip.problems.flow_tomography import NAME

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def compute(run: Run) -> Data:
    """The arms with three trained networks, what the posteriors are like, and the flow's score put to use."""
    space, sizes = latent(run), sizes_of(run)
    charted = Charted.of(evaluation(run), space)
    asked = held_out(run, charted)
    flow = load_card(NAME)
    rows = rows_of(run, asked)
    stamp = {"flow": flow.sha256, "bank": sizes.bank, "queries": sizes.held_out}
    curves = [curve(run, seed) for seed in SEEDS] + [curve(run, SEEDS[0], PAPER)]
    return {
        "bandwidth": KERNEL.bandwidth,
        "rank": RANK,
        "sizes": vars(sizes),
        "rows": rows,
        "curves": curves,
        "shape": kept(run, "flow-shape", stamp, lambda: shape(asked, space)),
        "coverage": kept(run, "flow-coverage", stamp, lambda: coverage(asked, space)),
        "latent": kept(run, "flow-outside", stamp, lambda: outside(space)),
        "deflation": kept(run, "flow-floor", stamp, lambda: {"rows": deflation(asked, budgets_of(run))})["rows"],
        "score": kept(run, "flow-score", stamp, lambda: refinement(run, asked)),
        "flow": {name: flow.about[name] for name in ("steps", "held_out", "held_out_negative_log_likelihood")},
    }


def draw(data: Data, figure: "Figure") -> None:
    """The arms on the left, how the networks learned on the right."""
    figure.set_size_inches(7.4, 3.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
    budget_axes(left, findings.budgets(data))
    rows = data["rows"]
    for arm in (FLOOR, REWEIGHT, FINETUNED, UNIVERSAL):
        arm_curve(left, rows, arm)
    for seed in SEEDS:
        own = [row for row in rows if row["arm"] == FLOOR or (row["arm"] == WARM and row["seed"] == seed)]
        label = "warm start (three trainings)" if seed == SEEDS[0] else "_"
        arm_curve(left, own, WARM, label=label, floor=True)
    left.set_title(f"(a) {data['sizes']['held_out']} held-out observations")
    left.legend(loc="lower left")
    _curves(right, data)


def _curves(axes: "Axes", data: Data) -> None:
    for found in data["curves"]:
        steps = [found["every"] * (i + 1) for i in range(len(found["held_out"]))]
        short = found["schedule"] == SHORT
        label = "_" if short and found["seed"] else "three trainings" if short else "paper's schedule"
        colour, line = (ORANGE, "-") if short else (INK, ":")
        axes.plot(steps, found["held_out"], color=colour, linestyle=line, label=label)
    axes.set_ylim(bottom=0.0, top=1.0)
    axes.axhline(1.0, color=BLUE, linestyle="--", label="_")
    axes.set_xlabel("steps of training")
    axes.set_title("(b) discrepancy / floor, validation")
    axes.grid(True, which="major", color="#e6eaed", linewidth=0.6)
    axes.legend(loc="lower left")


def headline(data: Data) -> str:
    """The result in one line."""
    found = {arm: several(findings.ratios(data, arm)) for arm in (WARM, FINETUNED, UNIVERSAL)}
    return (
        f"One pass over the floor at M = {findings.budgets(data)}: {found[WARM]}, medians of three trainings; per-set "
        f"descent {found[FINETUNED]}, the universal map {found[UNIVERSAL]}."
    )


PLACE = "section 7.4, fig:dq-cnf-mmd"
EXPERIMENT = Experiment(
    label="dq-cnf-mmd",
    title="One network over the posteriors of a trained flow, whose shape moves with the observation",
    minutes=30.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "cnf-below-floor",
            "On the flow's posteriors one forward pass is below the floor at every budget.",
            PLACE,
            "largest ratio of medians, one pass over floor, three trainings; intervals over observations",
            findings.warm_below_floor,
        ),
        Claim(
            "cnf-below-floor-of-the-flow",
            "The emission integrates the flow's posterior better than its own seeds do.",
            PLACE,
            "largest ratio of unbiased means on a second bank, one pass over floor",
            findings.against_the_flow,
        ),
        Claim(
            "cnf-margin-steady",
            "The margin is steady across the range of budgets.",
            PLACE,
            "largest ratio to the floor over the smallest, over M",
            findings.steady,
        ),
        Claim(
            "cnf-optimum-from-above",
            "One pass follows the per-set optimum from above.",
            "section 7.4",
            "largest ratio of medians, one pass over the finetuned; following is under 2",
            findings.from_above,
        ),
        Claim(
            "cnf-trainings-agree",
            "The result is that of the construction, not of one training: three seeds agree.",
            "appendix C.2",
            "largest ratio to the floor over the smallest, over three trainings",
            findings.trainings_agree,
        ),
        Claim(
            "cnf-shape-moves",
            "The shape of the flow's posterior moves with the observation.",
            "section 7.4",
            "spread of the latent log-determinant over observations, in units of its noise",
            findings.shape_moves,
        ),
        Claim(
            "cnf-discrepancy-moves",
            "So the discrepancy itself, in the metric of each posterior, moves with the observation.",
            "section 7.4",
            "relative spread of the expected floor over observations",
            findings.discrepancy_moves,
        ),
        Claim(
            "cnf-reads-the-observation",
            "Conditioned on the observation's image, one network follows the changing shape.",
            "section 7.4, appendix C.1",
            "discrepancy with another observation's image over that with its own",
            findings.reads_the_observation,
        ),
        Claim(
            "cnf-floor-of-a-bank",
            "The floor of seeds drawn from the bank is that of independent draws.",
            "appendix C.4, sampled references",
            "mean floor times M / (1 - c), distinct rows",
            findings.floor_is_deflated,
        ),
        Claim(
            "cnf-few-rejected",
            "A small share of the flow's draws is not finite and is filtered.",
            "section 7.4, appendix C.4",
            "share of rejected draws",
            findings.few_rejected,
        ),
        Claim(
            "cnf-constant-coupling",
            "With the square root of the rank as bandwidth whitened draws are coupled by about 1/e.",
            "appendix B.1, appendix C.3",
            "median kernel value of pairs of draws; interval: extremes over observations",
            findings.coupling,
        ),
        Claim(
            "cnf-score-refinement",
            "A flow's own score can refine the quadrature further.",
            "section 5.1, algorithm 2",
            "discrepancy after the score-based mean shift over that of its start",
            findings.score_refines,
        ),
    ),
)
