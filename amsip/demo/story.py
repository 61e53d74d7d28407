"""The page of the demo: what was asked, the nodes, the answers, the errors, and how to use the rule."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.demo.aquifer import LABELS
from amsip.demo.experiment import RNG_SEED, Comparison
from amsip.demo.site import site_map
from amsip.demo.wellfield import LICENCE, QUANTITIES
from amsip.report import svg
from amsip.report.figures import error_chart, pair_plot
from amsip.report.page import code, data_table, figure, page, paragraph, section, switch
from amsip.rules import EMISSIONS

USE = """import amsip

rule = amsip.load_rule("rule.npz")
rule.nodes                    # {m} parameter sets: run your model at these
rule.expect(model)            # model: ({m}, 4) tensor -> ({m},) or ({m}, k) tensor
rule.expect(outputs)          # or the outputs, if you ran it elsewhere

# without amsip: it is a plain NumPy file
import numpy as np
file = np.load("rule.npz")
answer = file["weights"] @ outputs"""


def write_page(
    samples: Float[Tensor, "n 4"], pool: Float[Tensor, "n k"], comparisons: Sequence[Comparison], repeats: int
) -> str:
    """The whole page, as HTML."""
    last = comparisons[-1]
    # no rule made of n draws is worth more than n
    capped = last.equivalent_draws(pool).clamp_max(len(samples))
    worth = svg.number(capped.log().mean().exp().item(), 2)
    title = f"{last.budget} runs of a groundwater model that do the work of {worth}"
    lead = (
        f"A pumping test left {len(samples):,} posterior draws of four aquifer parameters. Running the model at all of "
        f"them would answer every question about the well field. A rule of <strong>{last.budget} weighted nodes"
        f"</strong> answers the same questions as closely as <strong>{worth} independent draws</strong> would "
        f"(geometric mean over the four questions below, each at most {len(samples):,})."
    )
    chooser = switch("budget", [f"{c.budget} nodes" for c in comparisons], len(comparisons) - 1)
    sections = [
        _question(samples),
        section("The nodes", _nodes_text(), chooser, _nodes_figure(samples, comparisons)),
        section("The answers", _answers_text(repeats), chooser, *_answer_tables(comparisons, pool)),
        section("Error against the number of runs", _errors_text(len(samples)), _error_figures(comparisons, pool)),
        section("What to keep in mind", *_limits()),
        section("Use the rule", code(USE.format(m=last.budget))),
    ]
    return page(title, lead, sections, _footer(comparisons, repeats))


def _question(samples: Tensor) -> str:
    return section(
        "The question",
        paragraph(
            "Three wells pump beside a river and a wetland. A one-day pumping test says how easily water moves in the "
            "aquifer, but hardly how far away the river is: the test is over before the river is felt. Two years of "
            f"pumping will feel it. The licence allows {LICENCE} m of drawdown at the wetland. Each answer needs a run "
            "of a transient flow model at given parameters, which takes a fraction of a millisecond here, so that the "
            "claim can be checked, and minutes in practice."
        ),
        figure(
            site_map(samples),
            "The site. Discs: pumping wells; small rings: observation wells of the test; dotted: where the river is.",
        ),
    )


def _nodes_text() -> str:
    return paragraph(
        "Four parameters, all in base-10 logarithms. "
        '<span class="key draws"></span>draws of the posterior, by Metropolis sampling'
        '<span class="key rule"></span>nodes with positive weight'
        '<span class="key negative"></span>nodes with negative weight. The area of a node is the size of its weight.'
    )


def _nodes_figure(samples: Tensor, comparisons: Sequence[Comparison]) -> str:
    rules = [c.rule for c in comparisons]
    kept = {c.budget: EMISSIONS[int(c.rule.emission)] for c in comparisons if c.rule.emission is not None}
    caption = "What the guard kept: " + ", ".join(f"{name} at {m}" for m, name in kept.items()) + "."
    labels = [f"log₁₀ {label}" for label in LABELS]
    return figure(pair_plot(samples, labels, rules, len(rules) - 1), caption)


def _answers_text(repeats: int) -> str:
    return paragraph(
        "The truth here is the average over all draws. An error is the root mean square over "
        f"{repeats} independent rules, or over {repeats} sets of as many plain draws. <em>Equivalent draws</em> is the "
        "number of independent draws whose average errs as little as the rule: the variance of the quantity over the "
        "squared error of the rule (in brackets its 90% bootstrap interval over the repeats)."
    )


def _answer_tables(comparisons: Sequence[Comparison], pool: Tensor) -> list[str]:
    shown = len(comparisons) - 1
    return [
        _answer_table(comparison, pool, "scroll" if index == shown else "scroll hidden", f'data-budget="{index}"')
        for index, comparison in enumerate(comparisons)
    ]


def _answer_table(comparison: Comparison, pool: Tensor, style: str, attributes: str) -> str:
    of_rule, of_draws = comparison.errors(pool)
    worth = comparison.equivalent_draws(pool)
    low, high = comparison.equivalent_interval(pool, generator=torch.Generator().manual_seed(RNG_SEED))
    header = ("", "all draws", "this rule", "error, rule", f"error, {comparison.budget} draws", "equivalent draws")
    rows = [
        (
            name,
            *(svg.number(float(column[k])) for column in (pool.mean(0), comparison.by_rules[0], of_rule, of_draws)),
            f"{_round(worth[k])} ({_round(low[k])} to {_round(high[k])})",
        )
        for k, name in enumerate(QUANTITIES)
    ]
    return data_table(header, rows, style, attributes)


def _errors_text(draws: int) -> str:
    return paragraph(
        "Plain draws lose half their error when their number is quadrupled. A rule gains more from every further run, "
        "and most for smooth quantities; a yes-or-no question is the hardest. Errors are against the average over all "
        f"draws: against the posterior itself, no rule can be better than the {draws:,} draws it was made from. "
        '<span class="key rule"></span>rule <span class="key draws"></span>plain draws'
    )


def _error_figures(comparisons: Sequence[Comparison], pool: Tensor) -> str:
    budgets = [c.budget for c in comparisons]
    both = [c.errors(pool) for c in comparisons]
    charts = []
    for k, name in enumerate(QUANTITIES):
        errors = {"draws": [float(d[k]) for _, d in both], "rule": [float(r[k]) for r, _ in both]}
        values = errors["draws"] + errors["rule"]
        y = svg.Scale(0.7 * min(values), 1.3 * max(values), 200.0, 34.0, log=True)
        charts.append(error_chart(name, budgets, errors, y))
    return '<figure class="grid-2">\n' + "\n".join(charts) + "\n</figure>"


def _limits() -> list[str]:
    return [
        paragraph(
            "A rule is for averages. Its weights may be negative, so it is not a sample: it has no quantiles, no "
            "histogram, and must not be resampled. A probability is the average of a yes-or-no quantity, and may come "
            "out slightly below zero or above one."
        ),
        paragraph(
            "A rule pays when a run of the model costs more than the milliseconds the rule takes. When all draws can "
            "be run, run them all."
        ),
    ]


def _footer(comparisons: Sequence[Comparison], repeats: int) -> str:
    times = ", ".join(f"{c.milliseconds:.0f} ms for {c.budget} nodes" for c in comparisons)
    return (
        f"Made by <code>make demo</code> from numbers in results.json: {repeats} repeats, nodes started from generator "
        f"state {RNG_SEED}. One call of <code>amsip.quadrature</code> took {times} on this machine."
    )


def _round(value: Tensor) -> str:
    return svg.number(float(value), 2)
