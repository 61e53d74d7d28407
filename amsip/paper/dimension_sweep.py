"""The dimension sweep of section 7.1: the margin at M = 64 against the dimension, under three kernels."""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from amsip.paper.arms import FINETUNED, FLOOR, QUARTILES, UNIVERSAL, WARM
from amsip.paper.base import Claim, Data, Experiment, Finding, Run, Verdict
from amsip.paper.judge import several, surely_below, verdict_of
from amsip.paper.parts import kept
from amsip.paper.style import DEFAULT, shared_legend
from amsip.paper.style import FINETUNED as GREY
from amsip.paper.style import FLOOR as BLUE
from amsip.paper.style import WARM as ORANGE
from amsip.paper.toy_cells import MEDIAN, paper_toy, toy_rows
from amsip.problems.toys import BANDWIDTH_SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAUSSIANS = {2: "gaussian-2", 4: "gaussian-4", 8: "gaussian-8", 16: "gaussian-16"}
MIXTURES = {10: "mixture-10", 32: "mixture-32", 64: "mixture-64"}
FAMILIES = {"Gaussian": GAUSSIANS, "mixture": MIXTURES}
QUICK_FAMILIES = {"Gaussian": {2: "gaussian-2", 4: "gaussian-4"}, "mixture": {10: "mixture-10"}}
ISOTROPIC, WHITENED = "", "-whitened"
KERNELS = (ISOTROPIC, WHITENED, MEDIAN)
ARMS = {
    ISOTROPIC: (FLOOR, WARM, FINETUNED, UNIVERSAL),
    WHITENED: (FLOOR, WARM, FINETUNED, UNIVERSAL),
    MEDIAN: (FLOOR, FINETUNED, UNIVERSAL),
}
M, QUICK_M = 64, 16
COUPLING_DRAWS, QUICK_DRAWS = 1000, 200
WELL_BELOW, NEAR_ONE = 0.5, 0.5


def compute(run: Run) -> Data:
    """Rows at one budget for each target under each kernel, and how strongly each kernel couples two draws."""
    rows = []
    for family, members in (QUICK_FAMILIES if run.quick else FAMILIES).items():
        for dim, name in members.items():
            for kernel, names in ARMS.items():
                found = toy_rows(run, name + kernel, names, (QUICK_M if run.quick else M,))
                coupling = kept(
                    run, f"{name}{kernel}-coupling", {"of": "quartiles"}, partial(_coupling, run, name + kernel)
                )
                rows += [{**row, "family": family, "d": dim, "kernel": kernel, **coupling} for row in found]
    return {"rows": rows}


def draw(data: Data, figure: "Figure") -> None:
    """Margins of the two families, and the coupling of two draws under each kernel."""
    figure.set_size_inches(8.2, 3.5)
    panels = figure.subplots(1, 3)
    for axes, family in zip(panels, FAMILIES, strict=False):
        for kernel, colour, style in ((ISOTROPIC, ORANGE, "-"), (WHITENED, BLUE, "-")):
            _line(axes, _series(data, family, kernel, WARM), colour, style, "o", f"one pass, {_short(kernel)}")
        for kernel, colour in ((ISOTROPIC, ORANGE), (WHITENED, BLUE), (MEDIAN, DEFAULT)):
            _line(axes, _series(data, family, kernel, FINETUNED), colour, "--", "s", f"per set, {_short(kernel)}")
        axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(f"{family}, M = {data['rows'][0]['m']}")
    panels[0].set_ylabel("MMD² over the floor")
    for kernel, colour in ((ISOTROPIC, ORANGE), (MEDIAN, DEFAULT), (WHITENED, BLUE)):
        for family, marker in (("Gaussian", "o"), ("mixture", "D")):
            points = [(row["d"], row["coupling"]) for row in _of(data, family, kernel, FLOOR)]
            _line(panels[2], points, colour, "-", marker, None)
    panels[2].set_title("Gram entry; diamonds: mixture")
    shared_legend(figure, panels[0], columns=3)


def headline(data: Data) -> str:
    """The result in one line."""
    shown = [f"{_short(kernel)} {several(_ratios(data, 'Gaussian', kernel, WARM))}" for kernel in (ISOTROPIC, WHITENED)]
    dims = ", ".join(str(row["d"]) for row in _of(data, "Gaussian", ISOTROPIC, FLOOR))
    return f"One pass over floor, Gaussians of d = {dims}: {'; '.join(shown)}."


def _coupling(run: Run, name: str) -> Data:
    """The median Gram entry of two independent draws, and how far such entries are from equal."""
    toy = paper_toy(name)
    draws = toy.draws(QUICK_DRAWS if run.quick else COUPLING_DRAWS, BANDWIDTH_SEED + 1)
    half = len(draws) // 2
    entries = toy.kernel(draws[:half], draws[half:]).flatten()
    low, median, high = entries.quantile(torch.tensor(QUARTILES, dtype=entries.dtype)).tolist()
    return {"coupling": median, "inequality": high / low}


def _of(data: Data, family: str, kernel: str, arm: str) -> list[Data]:
    return [row for row in data["rows"] if row["family"] == family and row["kernel"] == kernel and row["arm"] == arm]


def _series(data: Data, family: str, kernel: str, arm: str) -> list[tuple[float, float]]:
    return [(row["d"], row["ratio"]) for row in _of(data, family, kernel, arm)]


def _ratios(data: Data, family: str, kernel: str, arm: str) -> list[float]:
    return [row["ratio"] for row in _of(data, family, kernel, arm)]


def _short(kernel: str) -> str:
    return {ISOTROPIC: "isotropic", WHITENED: "whitened", MEDIAN: "plain median"}[kernel]


def _line(
    axes: "Axes", points: Sequence[tuple[float, float]], colour: str, style: str, marker: str, label: str | None
) -> None:
    from matplotlib.ticker import NullLocator

    axes.plot(*zip(*points, strict=True), linestyle=style, color=colour, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({x for line in axes.get_lines() for x in map(float, line.get_xdata()) if x > 1.0})  # type: ignore
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("dimension d")
    axes.grid(True, color="#e6eaed", linewidth=0.6)


def _below(data: Data) -> Finding:
    rows = [row for family in FAMILIES for row in _of(data, family, ISOTROPIC, WARM)]
    worst = max(rows, key=lambda row: row["ratio"])
    low, high = worst["ratio_interval"]
    note = f"Worst target: {worst['toy']}; {worst['below_floor']:.0%} of its paired sets are below the floor."
    return Finding(surely_below(rows, WARM), worst["ratio"], (low, high), note)


def _wall(data: Data) -> Finding:
    own = {family: _ratios(data, family, ISOTROPIC, WARM) for family in FAMILIES}
    best = {family: _ratios(data, family, ISOTROPIC, FINETUNED) for family in FAMILIES}
    rising = all(a < b for row in own.values() for a, b in itertools.pairwise(row))
    note = (
        "; ".join(f"{family}: one pass {several(own[family])}, per set {several(best[family])}" for family in own)
        + ". The per-set optimum meets the same wall."
    )
    last = _of(data, "Gaussian", ISOTROPIC, WARM)[-1]
    return Finding(verdict_of(rising), last["ratio"], tuple(last["ratio_interval"]), note)


def _mechanism(data: Data) -> Finding:
    coupling = {
        kernel: [row["coupling"] for family in FAMILIES for row in _of(data, family, kernel, FLOOR)]
        for kernel in KERNELS
    }
    own = coupling[ISOTROPIC]
    inequality = {family: [row["inequality"] for row in _of(data, family, ISOTROPIC, FLOOR)] for family in FAMILIES}
    concentrating = all(a > b for row in inequality.values() for a, b in itertools.pairwise(row))
    near_one = max(own) > NEAR_ONE
    note = (
        f"Typical Gram entry of two draws at the paper's bandwidths, over all targets: {several(own)}. It is about "
        "1/4001 at d = 2 as at d = 64, because the rule is sigma^2 = median / (2 ln 4001): the Gram is near the "
        "identity in every dimension, and what is lost with dimension is close neighbours. Plain median: "
        f"{several(coupling[MEDIAN])}; whitened: {several(coupling[WHITENED])}. Upper over lower quartile of entries "
        "by d: " + "; ".join(f"{family} {several(row)}" for family, row in inequality.items()) + "."
    )
    return Finding(verdict_of(concentrating and near_one, concentrating), max(own), (min(own), max(own)), note)


def _whitened(data: Data) -> Finding:
    rows = {family: _of(data, family, WHITENED, WARM) for family in FAMILIES}
    worst = max((row for own in rows.values() for row in own), key=lambda row: row["ratio"])
    note = (
        "; ".join(f"{family} {several([row['ratio'] for row in own])}" for family, own in rows.items())
        + f"; well below means {WELL_BELOW:g}. Per set: "
        + "; ".join(f"{family} {several(_ratios(data, family, WHITENED, FINETUNED))}" for family in rows)
        + "; universal map, not trained on them: "
        + "; ".join(f"{family} {several(_ratios(data, family, WHITENED, UNIVERSAL))}" for family in rows)
        + "."
    )
    low, high = worst["ratio_interval"]
    every = [row for own in rows.values() for row in own]
    below, well = surely_below(every, WARM), surely_below(every, WARM, WELL_BELOW)
    verdict = verdict_of(well is Verdict.HOLDS, below is Verdict.HOLDS)
    return Finding(verdict, worst["ratio"], (low, high), note)


def _in_step(data: Data) -> Finding:
    gains = [
        before["ratio"] / after["ratio"]
        for family in FAMILIES
        for before, after in zip(
            _of(data, family, ISOTROPIC, FINETUNED), _of(data, family, WHITENED, FINETUNED), strict=True
        )
    ]
    note = "How many times deeper the per-set optimum is under the whitened kernel: least over the targets."
    return Finding(verdict_of(min(gains) > 1.0), min(gains), None, note)


def _metric_or_coupling(data: Data) -> Finding:
    largest = {family: max(row["d"] for row in _of(data, family, ISOTROPIC, FLOOR)) for family in FAMILIES}
    shown = []
    for family, dim in largest.items():
        ratios = {
            kernel: next(r["ratio"] for r in _of(data, family, kernel, FINETUNED) if r["d"] == dim)
            for kernel in KERNELS
        }
        shown.append((family, dim, ratios))
    note = "Per-set optimum over floor at the largest d: " + "; ".join(
        f"{family} d = {dim}: isotropic {r[ISOTROPIC]:.2g}, isotropic with the plain median {r[MEDIAN]:.2g}, "
        f"whitened {r[WHITENED]:.2g}"
        for family, dim, r in shown
    )
    # how much of the way from the wall to the whitened margin, in logarithms, the bandwidth alone goes
    gaussian = shown[0][2]
    share = _log_share(gaussian[ISOTROPIC], gaussian[MEDIAN], gaussian[WHITENED])
    note += (
        f". For the Gaussian, {share:.0%} of the way in logarithms is the bandwidth's alone, with no whitening: the "
        "paper changes the metric and the bandwidth at once. These Gaussians are nearly isotropic; where scales differ "
        "(the mixtures), the metric does more."
    )
    return Finding(verdict_of(share < 0.25, share < 0.75), share, None, note)


def _log_share(start: float, reached: float, end: float) -> float:
    return math.log(start / reached) / math.log(start / end)


def _sqrt_rule(data: Data) -> Finding:
    own = [row["coupling"] for row in _of(data, "Gaussian", WHITENED, FLOOR)]
    target = math.exp(-1.0)
    worst = max(own, key=lambda value: abs(value - target))
    note = f"Typical Gram entry of whitened draws for growing d: {several(own)}; 1/e is 0.37, reached as d grows."
    off = [abs(value / target - 1.0) for value in own]
    return Finding(verdict_of(max(off) < 0.1, off[-1] < 0.1), worst, (min(own), max(own)), note)


PLACE = "section 7.1, dimension sweep"
EXPERIMENT = Experiment(
    label="dimension-sweep",
    title="The margin against the dimension, under the paper's kernel, a wider one and the whitened one",
    minutes=30.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "dimension-below-floor",
            "Under the isotropic kernel one pass stays below the floor in every dimension.",
            PLACE,
            "largest ratio of medians at M = 64",
            _below,
        ),
        Claim(
            "dimension-wall",
            "Under the isotropic kernel the margin closes monotonically with the dimension.",
            PLACE,
            "ratio of one pass to the floor at M = 64, Gaussian d = 16",
            _wall,
        ),
        Claim(
            "dimension-mechanism",
            "The wall comes from Gram entries that become near-equal as the dimension grows.",
            "section 7.1, remark 4",
            "typical Gram entry of two draws at the paper's bandwidths",
            _mechanism,
        ),
        Claim(
            "dimension-whitened-open",
            "Under the whitened kernel one pass stays well below the floor everywhere.",
            PLACE,
            "largest ratio of medians at M = 64",
            _whitened,
        ),
        Claim(
            "dimension-optimum-in-step",
            "Whitening gives the per-set optimum its room back in step.",
            PLACE,
            "its depth under the whitened kernel over that under the isotropic one",
            _in_step,
        ),
        Claim(
            "dimension-metric-is-the-cause",
            "The wall is a property of the kernel's metric.",
            PLACE,
            "isotropic kernel with the plain median as bandwidth: share of the gain it recovers",
            _metric_or_coupling,
        ),
        Claim(
            "dimension-sqrt-rule",
            "The bandwidth sqrt(d) pins the typical coupling at 1/e in any dimension.",
            "appendix C.3",
            "typical Gram entry of whitened draws",
            _sqrt_rule,
        ),
    ),
)
