"""fig:dq-downstream-integral: posterior expectations with a known value, beside draws and the point estimate."""

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from amsip.paper import arms
from amsip.paper.base import Claim, Data, Experiment, Finding, Run, Verdict
from amsip.paper.judge import verdict_of
from amsip.paper.parts import kept
from amsip.paper.style import DEFAULT, FINETUNED, FLOOR, INK, WARM, budget_axes, shared_legend
from amsip.paper.tomography import listed
from amsip.paper.tomography_integrals import (
    CONTROLS,
    DEFAULT_ARM,
    DIRECTIONS,
    IID,
    INTEGRANDS,
    MILDER,
    PLUG_IN,
    RISK,
    TAILS,
    WARM_MEDIAN,
    rows_at,
    rows_of_draws,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_BUDGETS = (4, 16)
SEVERAL, PARITY = 3.0, (0.5, 1.25)
LOOKS = {
    IID: (FLOOR, "--", "", "independent draws"),
    PLUG_IN: (INK, ":", "", "plug-in of the mean"),
    arms.WARM: (WARM, "-", "o", "warm, table's bandwidth"),
    arms.FINETUNED: (FINETUNED, "-", "s", "finetuned, table's bandwidth"),
    WARM_MEDIAN: (WARM, ":", "o", "warm, plain median"),
    DEFAULT_ARM: (DEFAULT, "-", "D", "default kernel and map"),
}


def compute(run: Run) -> Data:
    """Errors of every arm at every budget, along the leading direction and along random ones."""
    budgets = QUICK_BUDGETS if run.quick else arms.BUDGETS
    parts = [kept(run, f"tomography-integrals-{m}", {}, partial(rows_at, run, m)) for m in budgets]
    draws = kept(run, "tomography-integrals-draws", {}, partial(rows_of_draws, run))
    return {
        "truths": {name: integrand.truth for name, integrand in INTEGRANDS.items()},
        "rows": [row for part in parts for row in part["rows"]],
        "draws": draws["rows"],
    }


def draw(data: Data, figure: "Figure") -> None:
    """The three integrands along the leading direction, by the median error and by the root mean square."""
    figure.set_size_inches(7.4, 5.2)
    panels, budgets = figure.subplots(2, 3, sharey="col"), _budgets(data)
    for row, (what, ylabel) in enumerate((("median", "median absolute error"), ("rmse", "root mean square error"))):
        for column, name in enumerate((*TAILS, RISK)):
            axes = panels[row, column]
            budget_axes(axes, budgets, ylabel="" if column else ylabel)
            for arm, (colour, line, marker, label) in LOOKS.items():
                values = [_row(data, arm, m, name)[what] for m in budgets]
                axes.plot(budgets, values, line, color=colour, marker=marker or None, label=label)
            axes.set_title(f"({'abcdef'[3 * row + column]}) {INTEGRANDS[name].title}")
    shared_legend(figure, panels[0, 0], columns=3)


def headline(data: Data) -> str:
    """The result in one line."""
    m = _budgets(data)[-1]
    warm, best = (_row(data, arm, m, TAILS[1])["nothing"] for arm in (arms.WARM, arms.FINETUNED))
    return (
        f"P(q > m + 2.5 s) at M = {m}: warm error {listed(_ratios(data, arms.WARM, TAILS[1])[-1:])} of that of draws, "
        f"estimated as nothing by {warm:.0%} of warm rules and {best:.0%} of optimal ones; by default "
        f"{listed(_ratios(data, DEFAULT_ARM, TAILS[1])[-1:])}."
    )


def _budgets(data: Data) -> list[int]:
    return sorted({row["m"] for row in data["rows"]})


def _row(data: Data, arm: str, m: int, integrand: str, kind: str = "leading") -> Data:
    wanted = (arm, m, integrand, kind)
    return next(r for r in data["rows"] if (r["arm"], r["m"], r["integrand"], r["directions"]) == wanted)


def _ratios(data: Data, arm: str, integrand: str, what: str = "median", kind: str = "leading") -> list[float]:
    """An arm's error over that of as many draws, budget by budget."""
    pairs = ((_row(data, a, m, integrand, kind)[what] for a in (arm, IID)) for m in _budgets(data))
    return [ours / theirs for ours, theirs in pairs]


def _tails_won(data: Data) -> Finding:
    ratios = {name: _ratios(data, arms.WARM, name) for name in TAILS}
    worst = max(max(values) for values in ratios.values())
    won = [value < 1.0 for values in ratios.values() for value in values]
    partly = Verdict.CONDITION if sum(won) >= len(won) / 2 else Verdict.FAILS
    note = (
        f"Ratio of median absolute errors, warm to as many draws, M = {listed(_budgets(data))}: beyond 2 s "
        f"{listed(ratios[TAILS[0]])}; beyond 2.5 s {listed(ratios[TAILS[1]])}. By root mean square "
        f"{listed(_ratios(data, arms.WARM, TAILS[0], 'rmse'))}; {listed(_ratios(data, arms.WARM, TAILS[1], 'rmse'))}. "
        f"Along {DIRECTIONS} random directions {listed(_ratios(data, arms.WARM, TAILS[0], kind='random'))}; "
        f"{listed(_ratios(data, arms.WARM, TAILS[1], kind='random'))}. Default kernel and map "
        f"{listed(_ratios(data, DEFAULT_ARM, TAILS[0]))}; {listed(_ratios(data, DEFAULT_ARM, TAILS[1]))}. Where most "
        "sets have no draw in the tail, both medians are the truth itself and the ratio is one."
    )
    return Finding(Verdict.HOLDS if all(won) else partly, worst, None, note)


def _deepens(data: Data) -> Finding:
    ratios = {name: _ratios(data, arms.WARM, name) for name in TAILS}
    falls = [late < early for values in ratios.values() for early, late in pairwise(values)]
    partly = Verdict.CONDITION if all(values[-1] < values[0] for values in ratios.values()) else Verdict.FAILS
    change = max(values[-1] / values[0] for values in ratios.values())
    milder = _ratios(data, arms.WARM, MILDER)
    note = (
        f"Warm / draws {listed(ratios[TAILS[0]])}; {listed(ratios[TAILS[1]])} as M grows; beyond 1.5 s, a milder tail, "
        f"{listed(milder)}. By root mean square {listed(_ratios(data, arms.WARM, TAILS[0], 'rmse'))}; "
        f"{listed(_ratios(data, arms.WARM, TAILS[1], 'rmse'))}; {listed(_ratios(data, arms.WARM, MILDER, 'rmse'))}."
    )
    return Finding(Verdict.HOLDS if all(falls) else partly, change, None, note)


def _matched(data: Data) -> Finding:
    m = _budgets(data)[-1]
    by = {
        (arm, what): min(_draws_needed(data, arm, m, name, what) / m for name in TAILS)
        for arm in (arms.WARM, WARM_MEDIAN, DEFAULT_ARM)
        for what in ("median", "rmse")
    }
    number = by[arms.WARM, "median"]
    # a median error can be low because most estimates are zero: several times must be so by both
    least = min(number, by[arms.WARM, "rmse"])
    note = (
        f"At M = {m}, the less favourable tail: as many times more draws as accurate by median {number:.3g}, by root "
        f"mean square {by[arms.WARM, 'rmse']:.3g}. At the plain median {by[WARM_MEDIAN, 'median']:.3g} and "
        f"{by[WARM_MEDIAN, 'rmse']:.3g}; by default {by[DEFAULT_ARM, 'median']:.3g} and "
        f"{by[DEFAULT_ARM, 'rmse']:.3g}."
    )
    return Finding(verdict_of(least >= SEVERAL, number > 1.0), number, None, note)


def _draws_needed(data: Data, arm: str, m: int, integrand: str, what: str) -> int:
    """The fewest draws of the table whose error stays below the rule's; its largest entry if none does."""
    goal = _row(data, arm, m, integrand)[what]
    own = sorted((row for row in data["draws"] if row["integrand"] == integrand), key=lambda row: row["n"])
    worse = [row["n"] for row in own if row[what] > goal]
    later = [row["n"] for row in own if not worse or row["n"] > worse[-1]]
    return later[0] if later else own[-1]["n"]


def _plug_in(data: Data) -> Finding:
    budgets = _budgets(data)[1:]
    ratios = {
        name: [_row(data, arms.WARM, m, name)["median"] / _row(data, PLUG_IN, m, name)["median"] for m in budgets]
        for name in (*TAILS, RISK)
    }
    worst = max(max(values) for values in ratios.values())
    partly = Verdict.CONDITION if all(values[-1] < 1.0 for values in ratios.values()) else Verdict.FAILS
    note = (
        f"Warm / plug-in at M = {listed(budgets)} on two tails and the risk: "
        f"{'; '.join(listed(values) for values in ratios.values())}. "
        "A ratio of one on a tail means that the rule puts nothing there either."
    )
    return Finding(Verdict.HOLDS if worst < 1.0 else partly, worst, None, note)


def _not_zero(data: Data) -> Finding:
    def shares(arm: str, name: str) -> str:
        return listed(_row(data, arm, m, name)["nothing"] for m in _budgets(data))

    worst = max(_row(data, arms.WARM, m, TAILS[1])["nothing"] for m in _budgets(data)[-2:])
    biases = listed(_row(data, arms.WARM, m, TAILS[1])["bias"] for m in _budgets(data))
    note = (
        f"Share of sets whose estimate of P(q > m + 2.5 s) is below a tenth of it, M = {listed(_budgets(data))}: warm "
        f"{shares(arms.WARM, TAILS[1])}, the per-set optimum {shares(arms.FINETUNED, TAILS[1])}, draws "
        f"{shares(IID, TAILS[1])}, warm at the plain median {shares(WARM_MEDIAN, TAILS[1])}, default "
        f"{shares(DEFAULT_ARM, TAILS[1])}. Bias of warm {biases}, truth {data['truths'][TAILS[1]]:.4f}."
    )
    return Finding(Verdict.HOLDS if worst < 0.5 else Verdict.FAILS, worst, None, note)


def _risk(data: Data) -> Finding:
    ratios = _ratios(data, arms.WARM, RISK)
    verdict = Verdict.CONDITION if ratios[0] < 1.0 or ratios[-1] > 1.0 else Verdict.FAILS
    verdict = Verdict.HOLDS if ratios[0] < 1.0 < ratios[-1] else verdict
    biases = listed(_row(data, arms.WARM, m, RISK)["bias"] for m in _budgets(data))
    note = (
        f"Warm / draws by median {listed(ratios)}, by root mean square "
        f"{listed(_ratios(data, arms.WARM, RISK, 'rmse'))}; bias {biases}. "
        f"Default kernel and map {listed(_ratios(data, DEFAULT_ARM, RISK))}."
    )
    return Finding(verdict, ratios[-1], None, note)


def _bulk(data: Data) -> Finding:
    ratios = {name: _ratios(data, arms.WARM, name) for name in (*TAILS, *CONTROLS)}
    bulk, tail = ([ratios[name][-1] for name in names] for names in (CONTROLS, TAILS))
    shrinks = max(tail) < min(bulk) and PARITY[0] < min(bulk) and max(bulk) < PARITY[1]
    note = (
        f"Parity is {PARITY[0]:g} to {PARITY[1]:g}. Warm / draws at M = {listed(_budgets(data))}: mean distance "
        f"{listed(ratios['distance'])}, variance "
        f"{listed(ratios['square'])}. Default kernel and map {listed(_ratios(data, DEFAULT_ARM, 'distance'))} and "
        f"{listed(_ratios(data, DEFAULT_ARM, 'square'))}."
    )
    return Finding(verdict_of(shrinks, min(tail) < min(bulk)), min(bulk), None, note)


PLACE = "section 7.3, fig:dq-downstream-integral"

EXPERIMENT = Experiment(
    label="dq-downstream-integral",
    title="Limited-angle tomography: errors of posterior expectations with a known value",
    minutes=6.0,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "downstream-tails-beat-draws",
            "On deep-tail probabilities the warm start's error is below that of as many draws at every budget.",
            PLACE,
            "largest ratio of median absolute errors over two tails and M = 4 to 64",
            _tails_won,
        ),
        Claim(
            "downstream-margin-deepens",
            "Its margin on the tails deepens with the budget.",
            PLACE,
            "ratio at the largest M over the ratio at the smallest, the worse of two tails",
            _deepens,
        ),
        Claim(
            "downstream-several-times-the-draws",
            "On the tails draws match its accuracy only at several times the budget.",
            PLACE,
            "number of draws as accurate, relative to M, at the largest M",
            _matched,
        ),
        Claim(
            "downstream-plug-in",
            "The plug-in of the point estimate is worse at all but the smallest budget.",
            PLACE,
            "largest ratio of median absolute errors, warm to plug-in, from the second budget on",
            _plug_in,
        ),
        Claim(
            "downstream-tails-are-estimated",
            "The tail probabilities are integrated, not returned as zero.",
            PLACE,
            "share of sets whose estimate is below a tenth of the truth, at the two largest budgets",
            _not_zero,
        ),
        Claim(
            "downstream-risk-overtaken",
            "On the exponential risk it wins at small budgets and draws overtake it at the largest.",
            PLACE,
            "ratio of median absolute errors, warm to draws, at the largest M",
            _risk,
        ),
        Claim(
            "downstream-parity-in-the-bulk",
            "The margin is largest in the deep tail and shrinks toward parity in the bulk.",
            "section 7.3",
            "ratio of median absolute errors at the largest M for mean distance and variance",
            _bulk,
        ),
    ),
)
