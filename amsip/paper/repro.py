"""tab:repro: the settings of every run beside the paper's, and the two numerical promises of its appendix."""

import math
from typing import TYPE_CHECKING

from amsip.bench.toys.measure import bench_toys
from amsip.paper.base import Claim, Data, Experiment, Finding, Run
from amsip.paper.judge import several, verdict_of
from amsip.paper.score_checks import CHECK_NODES, LITTLE, RIDGE_NODES, cross_check, ridge_effect
from amsip.paper.settings import (
    CONDITIONED_COUNT,
    FLOW,
    FOUR_DIGITS,
    LARGEST_COUNT,
    LEAST_COUNT,
    NOT_STATED,
    TABLE,
    TOMOGRAPHY,
    YES,
    bandwidths,
    parameters,
    setting_rows,
)
from amsip.paper.style import DEFAULT as GREEN
from amsip.paper.style import INK
from amsip.paper.style import WARM as ORANGE
from amsip.problems.toys import BANDWIDTH_DRAWS, five_modes, tomography_latent
from amsip.references.gaussian import Gaussian
from amsip.references.mixture import Mixture
from amsip.weights import JITTER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMISED, ROUNDING = 1e-15, 1e-12
RIDGE_SETS, QUICK_RIDGE_SETS = 32, 4
HARMLESS = 0.01
WITHIN_ERROR = 1.0


def compute(run: Run) -> Data:
    """The settings, the bandwidths, parameter counts, the cross-check of the score and what the ridge changes."""
    targets = [bench_toys()[line.target] for line in TABLE if line.target in bench_toys()]
    closed = [toy for toy in (*targets, tomography_latent()) if isinstance(toy.target, Gaussian | Mixture)]
    plane = [toy for toy in (*targets, five_modes(), tomography_latent()) if not run.quick or toy.dim == 2]
    return {
        "rows": setting_rows(),
        "bandwidths": bandwidths(),
        "parameters": {line.name: parameters(line) for line in TABLE},
        "cross_check": {toy.name: cross_check(toy) for toy in closed},
        "ridge": {toy.name: ridge_effect(toy, QUICK_RIDGE_SETS if run.quick else RIDGE_SETS) for toy in plane},
    }


def draw(data: Data, figure: "Figure") -> None:
    """Bandwidths: ours and the plain median over the printed ones; and how many parameters each network has."""
    figure.set_size_inches(7.6, 3.3)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.6, 1.0))
    names = [line.name for line in TABLE]
    places = range(len(names))
    for key, colour, marker, label in (
        ("ours", ORANGE, "o", "ours, by the rule with ln 4001"),
        ("plain_median", GREEN, "D", "plain median of the distances"),
    ):
        ratios = [(row[key] / row["paper"], y) for y, row in zip(places, data["bandwidths"], strict=True) if key in row]
        left.plot(*zip(*ratios, strict=True), marker, color=colour, label=label)
    left.axvline(1.0, color="#999999", linewidth=0.8, zorder=0)
    left.axvline(_rule_factor(), color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    left.set_yticks(places, names)
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set_xlim(0, 5)
    left.set_xlabel("bandwidth over the printed one")
    left.legend(loc="center", bbox_to_anchor=(0.5, 0.5))
    right.barh(places, [data["parameters"][name] for name in names], 0.55, color=ORANGE)
    right.set_xscale("log")
    for count in (LEAST_COUNT, LARGEST_COUNT, CONDITIONED_COUNT):
        right.axvline(count, color=INK, linewidth=0.8, linestyle=":")
    right.set_xlim(3e4, 3e6)
    right.set_xlabel("parameters (dotted: printed)")
    for axes in (left, right):
        axes.grid(True, axis="x", color="#e6eaed", linewidth=0.6)
        axes.set_axisbelow(True)


def headline(data: Data) -> str:
    """The result in one line."""
    stated = _stated(data)
    agreeing = sum(row["agrees"] == YES for row in stated)
    exact = sum(row["agrees"] == FOUR_DIGITS for row in data["bandwidths"])
    return (
        f"{agreeing} of {len(stated)} printed settings are ours to the printed digits, {exact} of "
        f"{len(data['bandwidths'])} bandwidths among them; {len(data['rows']) - len(stated)} more had to be found."
    )


def _rule_factor() -> float:
    """What divides the plain median in the rule that gives the printed bandwidths."""
    return math.sqrt(2.0 * math.log(BANDWIDTH_DRAWS + 1))


def _stated(data: Data) -> list[Data]:
    return [row for row in data["rows"] if row["paper"] != NOT_STATED]


def _values(data: Data) -> Finding:
    rows = data["bandwidths"]
    exact = sum(row["agrees"] == FOUR_DIGITS for row in rows)
    others = [row for row in rows if row["agrees"] != FOUR_DIGITS]
    apart = [abs(row["ours"] - row["paper"]) / row["sampling_error"] for row in others if "sampling_error" in row]
    note = f"Of {len(rows)}, recomputed from draws at the paper's seeds. " + (
        f"The other is on draws that the paper does not fix: {several(apart)} sampling errors apart."
        if apart
        else f"Others: {len(others)}."
    )
    close = len(apart) == len(others) and all(value < WITHIN_ERROR for value in apart)
    return Finding(verdict_of(not others, close), float(exact), None, note)


def _rule(data: Data) -> Finding:
    ratios = [row["plain_median"] / row["paper"] for row in data["bandwidths"] if "plain_median" in row]
    note = (
        f"Over {len(ratios)} targets. The words give {min(ratios):.4g} to {max(ratios):.4g} times the printed values; "
        f"the rule that gives these divides the squared median by 2 ln(4000 + 1), which is a factor of "
        f"{_rule_factor():.4g}. The typical Gram entry is then 1/4001 and not 0.61: see the dimension sweep. Our "
        "default has neither: octaves of kernels in whitened coordinates."
    )
    return Finding(verdict_of(max(ratios) < 1.001), max(ratios), (min(ratios), max(ratios)), note)


def _counts(data: Data) -> Finding:
    counts = data["parameters"]
    plain = [count for name, count in counts.items() if name != FLOW]
    found = [f"{value:.1e}" for value in (min(plain), max(plain), counts[FLOW])]
    printed = [f"{value:.1e}" for value in (LEAST_COUNT, LARGEST_COUNT, CONDITIONED_COUNT)]
    note = f"Unconditional {min(plain):,} to {max(plain):,}, observation-conditioned {counts[FLOW]:,}."
    return Finding(verdict_of(found == printed), float(max(plain)), None, note)


def _agree(data: Data) -> Finding:
    stated = _stated(data)
    unlike = [row for row in stated if row["agrees"] != YES]
    note = f"Of {len(stated)} printed settings. The others: " + "; ".join(
        f"{row['experiment']}, {row['setting']}: {row['ours']} for {row['paper']}" for row in unlike
    )
    return Finding(
        verdict_of(not unlike, len(unlike) < 0.2 * len(stated)), float(len(stated) - len(unlike)), None, note + "."
    )


def _enough(data: Data) -> Finding:
    missing = [row for row in data["rows"] if row["paper"] == NOT_STATED]
    note = (
        "Settings without which a run cannot be repeated and that the paper does not print: "
        + "; ".join(f"{row['experiment']}, {row['setting']} ({row['ours']})" for row in missing)
        + ". Read in the authors' public successor repository, or chosen."
    )
    return Finding(verdict_of(not missing, False), float(len(missing)), None, note)


def _checked(data: Data) -> Finding:
    found = data["cross_check"]
    worst = max(found, key=lambda name: found[name])
    note = (
        f"Largest of {len(found)} targets ({worst}), {CHECK_NODES} draws under optimal weights, against Gaussian "
        f"densities of torch; at or below {PROMISED:g} in {sum(v <= PROMISED for v in found.values())}. "
        "A double carries 1.1e-16, and the score is a difference of larger terms."
    )
    return Finding(verdict_of(found[worst] <= PROMISED, found[worst] <= ROUNDING), found[worst], None, note)


def _ridge(data: Data) -> Finding:
    found = {name: effect["ratio"] for name, effect in data["ridge"].items()}
    own = {name: ratio for name, ratio in found.items() if name in {*(line.target for line in TABLE), TOMOGRAPHY}}
    worst = max(own, key=lambda name: abs(own[name] - 1.0))
    others = several([ratio for name, ratio in found.items() if name not in own])
    note = (
        f"Score of reweighted draws, M = {RIDGE_NODES}, a ridge of {JITTER:g} over that with {LITTLE:g}: the set it "
        f"moves most, of the table's targets ({worst}); on the five modes, where the Gram is near singular: {others}. "
        "The score is stationary in the weights, so that it feels the ridge in second order alone."
    )
    return Finding(verdict_of(abs(own[worst] - 1.0) < HARMLESS, abs(own[worst] - 1.0) < 0.5), own[worst], None, note)


PLACE = "appendix C.5, tab:repro"
EXPERIMENT = Experiment(
    label="repro",
    title="The table of settings, ours over the paper's",
    minutes=0.5,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "repro-bandwidths",
            "The bandwidths of the table follow from 4000 draws of each target.",
            "appendix C.3, tab:repro",
            "bandwidths that agree to the printed digits",
            _values,
        ),
        Claim(
            "repro-bandwidth-rule",
            "The bandwidth is the square root of the median squared distance between draws.",
            "appendix C.3",
            "that median over the printed values, largest and range",
            _rule,
        ),
        Claim(
            "repro-parameters",
            "The networks have 110 to 250 thousand parameters, the conditioned one a million.",
            "appendix C.1",
            "parameters of the largest unconditional network",
            _counts,
        ),
        Claim(
            "repro-settings",
            "The runs here use the settings of the table.",
            PLACE,
            "printed settings that ours agree with",
            _agree,
        ),
        Claim(
            "repro-enough-detail",
            "The appendix has the detail that it takes to repeat the runs.",
            "appendix C",
            "settings that are needed and not printed",
            _enough,
        ),
        Claim(
            "repro-cross-check",
            "Two ways to work out the score agree to machine precision.",
            "appendix C.2",
            "largest relative difference; the paper has 1e-15",
            _checked,
        ),
        Claim(
            "repro-ridge",
            "Where the Gram is well conditioned the ridge changes the optimum negligibly.",
            "appendix C.3",
            "score with the ridge over that with a thousandth of it",
            _ridge,
        ),
    ),
)
