"""From the measured limits to the page `when-not-to-use.md`."""

from collections.abc import Sequence

from amsip.bench.posteriors.arms import DEFAULT, REWEIGHTED
from amsip.bench.posteriors.integrands import FAMILIES
from amsip.bench.posteriors.limits import NODES
from amsip.bench.posteriors.pages import markdown, number, short


def page(result: dict) -> str:
    """The whole page, in Markdown."""
    limits = result["limits"]
    sections = (
        _OPENING,
        _cheap(limits["cheap"]),
        _rough(limits["rough"]),
        _wide(limits["wide"]),
        _wild(limits["wild"]),
        _small(limits["small"]),
        f"Measured by `{result['command']}` at commit {result['commit']}, {result['date'][:10]}.",
    )
    return "\n\n".join(sections) + "\n"


_OPENING = f"""# When not to use a rule

A rule of {NODES} nodes pays when each value of f is expensive and f is smooth on the scale of the posterior. Here are
the cases in which it does not, each with what was measured. "Worth" is the number of independent draws that one node
replaces, with a 90% interval; below 1 plain draws are better. The posteriors are observation 1 of sbibm tasks."""


def _cheap(rows: Sequence[dict]) -> str:
    body = [
        (
            f"{row['task']} ({row['d']})",
            row["method"],
            number(row["ms"]),
            number(row["average_ms"]),
            number(1e3 * row["even_pool_ms"]),
            number(1e3 * row["even_ms"]),
        )
        for row in rows
    ]
    header = (
        "task",
        "rule",
        "ms to make it",
        "ms to average x^2 over 10,000 draws",
        "microseconds, whole pool",
        "microseconds, same error",
    )
    longest = max(row["even_ms"] for row in rows if row["method"] == DEFAULT)
    return f"""## Functions cheaper than a millisecond

If f costs microseconds, evaluate it at every draw in hand: nothing beats the average of the whole pool on that pool.
The last two columns are the cost of one value of f above which the rule saves time: against the whole pool, and
against as many draws as err like the rule. The largest break-even of `{DEFAULT}` met here is {number(longest)} ms.

{markdown(header, body)}"""


def _rough(rows: Sequence[dict]) -> str:
    names = list(rows[0]["worth"])
    body = [
        (f"{row['task']} ({row['d']})", row["method"], *(short(row["worth"][name]) for name in names)) for row in rows
    ]
    least = min(row["worth"][name][0] for row in rows for name in names)
    return f"""## Integrands that jump

Indicators of half-spaces of the given probability, and the sign of sin(6 u.x). A jump lies outside every smooth class,
so the error is that of a few nodes falling on one side or the other: expect about one draw a node, and less where
weights are large. The smallest value met is {number(least)}. Use plain draws, or smooth the indicator.

{markdown(("task", "rule", *names), body)}"""


def _wide(rows: Sequence[dict]) -> str:
    body = [
        (str(row["d"]), row["method"], short(row["capped"]), *(short(row["raw"][f]) for f in FAMILIES)) for row in rows
    ]
    return f"""## More than 50 coordinates without a subspace

Standard Gaussian pools of 10,000 draws, M = {NODES}. The worth of a node falls as the dimension grows. With no more
nodes than coordinates no rule has the right covariance, only the right mean and total variance. Use an informed
subspace (`amsip.Subspace`) when the data inform few directions, more nodes than coordinates where that is affordable.

{markdown(("d", "rule", "mean", *FAMILIES), body)}"""


def _wild(rows: Sequence[dict]) -> str:
    families = list(rows[0]["worth"])
    body = [(str(r["d"]), r["pool"], r["method"], *(short(r["worth"][f]) for f in families)) for r in rows]
    return f"""## Wild draws and heavy tails

Pools of 10,000 draws of which a few carry much of the variance, M = {NODES}. Where a single draw carries more than a
quarter of it, a warning says so, the other draws set the scale, and means and covariances are not made exact: few nodes
that had them would have little else. The integrands are scaled by those other draws; integrals that the tails decide
(moments, exponentials) are left out here, for no few draws or nodes give them. The stated errors do not see such tails.

{markdown(("d", "pool", "rule", *families), body)}"""


def _small(rows: Sequence[dict]) -> str:
    names = ("whole pool", REWEIGHTED, DEFAULT)
    body = [
        (
            f"{row['task']} ({row['d']})",
            str(row["draws"]),
            number(row["draws"] / NODES),
            *(short(row[n]) for n in names),
        )
        for row in rows
    ]
    return f"""## Pools smaller than ten draws a node

The rule integrates the pool, so it inherits the pool's own noise. Against the average over all 10,000 reference draws,
M = {NODES}: worth a node, that is per {NODES} values of f, of the rule and of the average over the whole pool (which
evaluates f at every draw). Below ten draws a node the rule can reach no more than a handful, whatever it does.

{markdown(("task", "draws", "draws a node", *names), body)}"""
