"""What the comparison says, for a terminal and for the page `networks.md`."""

import math
from collections.abc import Sequence
from typing import Any

from amsip.bench.base import markdown, origin, table
from amsip.bench.networks.measure import LONG, STEPS
from amsip.bench.networks.summary import GROUPS
from amsip.bench.networks.variants import BASE, NONE, SHIPPED, TWIN
from amsip.defaults import universal_descent

AFTER = {"0": "one pass", **{str(step): f"the pass and {step} steps of descent" for step in STEPS if step}}
HEADER = ("network", "parameters", "steps", "CPU s", "pass", *(f"+{step}" for step in STEPS))
Row = dict[str, Any]


def render(result: dict[str, Any]) -> str:
    """The table and the sentences, for a terminal."""
    rows = [_cells(row) for row in result["rows"]]
    return "\n".join([table(HEADER, rows), "", *sentences(result["rows"])])


def page(result: dict[str, Any]) -> str:
    """The whole page, in Markdown."""
    rows, held = result["rows"], result["held_out"]
    queries = 2 * held["batches"] * held["queries"] * len(held["dims"]) * len(held["nodes"])
    opening = f"""# Designs of the network, one change at a time

Each row changes one thing of the design of the shipped map (8 layers of width 64, log-ratio loss of the nodes after
every layer, the wide family) and is trained by the same code. **The rows were trained for {result["steps"]} steps, each
down its own cosine; the shipped weights for {_shipped_steps(rows)}.** So this page ranks designs by what they learn in
little training; which would lead after all of it, only a long training of each would show.

Scores are on {queries} posteriors of the training family that no training has seen (dimensions {_list(held["dims"])},
M = {_list(held["nodes"])}; half mixtures, half pools of warped densities), each under the kernel of half the training
batches and under the package's default. A number in the columns +{", +".join(map(str, STEPS))} is the median of MMD²
with optimal weights, after the pass and so many steps of descent (the default takes {universal_descent.steps}), as a
ratio to what {LONG} steps from the seeds alone reach; the quartiles stand in brackets. "pass" is the time of one pass
as a ratio to that of the base, measured side by side on a shared machine: how well, the base's own row shows. "CPU s"
is that of the training."""
    groups = list(rows[0]["against"])
    where = [
        (row["name"], *(_interval(row["against"][group]["0"]) for group in groups)) for row in rows if _compared(row)
    ]
    paired = [(row["name"], *(_interval(row["against"]["all"][str(step)]) for step in STEPS)) for row in rows]
    sections = [
        opening,
        "\n".join(f"- {line}" for line in (*sentences(rows), *_missing(result))),
        markdown(HEADER, [_cells(row) for row in rows]),
        "## Against the base, posterior by posterior\n\nThe geometric mean of the ratio to the base's MMD² on the same "
        "posterior from the same seeds; in brackets a bootstrap interval of 95 % over batches of posteriors. Below 1 "
        "is better than the base. It knows the noise of the posteriors, not that of training: for this look at the "
        f"row *{TWIN}*.\n\n" + markdown(("network", *(f"+{step}" for step in STEPS)), paired),
        "## Where one pass differs\n\n" + markdown(("network", *groups), where),
        origin(result),
    ]
    return "\n\n".join(sections) + "\n"


def sentences(rows: Sequence[Row]) -> list[str]:
    """Which differences matter: those whose interval lies beyond all that other random numbers do."""
    lines = [
        f"Training the base again with other random numbers multiplies MMD² by {_each(row)}: the scale of the noise, "
        "from one pair of trainings. Better and worse below are intervals that lie wholly beyond it."
        for row in rows
        if row["name"] == TWIN
    ]
    for step, words in AFTER.items():
        band = noise(rows, step)
        worse = _named([row for row in rows if _compared(row) and _of(row, step)[1] > band], step)
        better = _named([row for row in rows if _compared(row) and _of(row, step)[2] < 1 / band], step)
        alike = [
            f"*{r['name']}*" for r in rows if _compared(r) and _of(r, step)[1] <= band and _of(r, step)[2] >= 1 / band
        ]
        said = [f"worse than the base: {worse}", f"better: {better}", f"not told apart: {', '.join(alike) or 'none'}"]
        lines.append(f"After {words}, {'; '.join(said)}.")
    for row in rows:
        if row["name"] == SHIPPED:
            lines.append(f"The same design trained to the end, as shipped, multiplies MMD² by {_each(row)}.")
        if row["name"] == NONE:
            steps = [f"{_interval(_of(row, str(step)))} at +{step}" for step in STEPS]
            lines.append(f"Without a network MMD² is this many times the base's: {', '.join(steps)}.")
    return lines


def noise(rows: Sequence[Row], step: str) -> float:
    """The largest factor that other random numbers may make of the base's discrepancy; 1 where it was not measured.

    Example:
        >>> noise([{"name": TWIN, "against": {"all": {"0": (1.0, 0.8, 1.1)}}}], "0")
        1.25
    """
    ends = [end for row in rows if row["name"] == TWIN for end in _of(row, step)[1:]]
    return max((max(end, 1 / end) for end in ends), default=1.0)


def _missing(result: dict[str, Any]) -> list[str]:
    names = ", ".join(f"*{name}*" for name in result["missing"])
    return [f"Listed for the comparison but not measured yet: {names}."] if names else []


def _of(row: Row, step: str) -> Sequence[float]:
    found: Sequence[float] = row["against"][next(iter(GROUPS))][step]
    return found


def _compared(row: Row) -> bool:
    return row["name"] not in (BASE, TWIN, SHIPPED, NONE)


def _named(rows: Sequence[Row], step: str) -> str:
    return ", ".join(f"*{row['name']}* ({_factor(_of(row, step)[0])})" for row in rows) or "none"


def _each(row: Row) -> str:
    said = [f"{_interval(_of(row, step))} after {words}" for step, words in AFTER.items()]
    return ", ".join(said[:-1]) + " and " + said[-1]


def _cells(row: Row) -> tuple[str, ...]:
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f}"
    ratios = [f"{_factor(mid)} ({_factor(low)} to {_factor(high)})" for low, mid, high in row["ratio"].values()]
    return (row["name"], f"{row['parameters']:,}", str(row["steps"]), seconds, f"{row['pass']:.2f}", *ratios)


def _interval(values: Sequence[float]) -> str:
    mean, low, high = values
    # the base against itself has no interval
    return "1" if low == high == 1.0 else f"{_factor(mean)} ({_factor(low)} to {_factor(high)})"


def _factor(value: float) -> str:
    """Two digits after the point, or two in all where it is larger."""
    return f"{value:.2f}" if not math.isfinite(value) or value < 10 else f"{value:.0f}"


def _shipped_steps(rows: Sequence[Row]) -> str:
    return next((f"{row['steps']:,}" for row in rows if row["name"] == SHIPPED), "many more")


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
