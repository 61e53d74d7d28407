"""From the result of a measurement to the page `posteriors.md`."""

import math
import statistics
from collections.abc import Callable, Sequence

from amsip.bench.base import table
from amsip.bench.posteriors.arms import DEFAULT, DESCENT, OURS, PLAIN, REWEIGHTED
from amsip.bench.posteriors.data import DIMENSIONS, TASKS
from amsip.bench.posteriors.integrands import FAMILIES
from amsip.bench.posteriors.summary import STATED, Standing, best_settings, compared_on, geometric, standings

HEADLINE = 32
GROWING = ("exponential", "oscillating", "smooth tail", "shortfall")
EXACT = ("linear", "square", "cross")
FIGURE = "posteriors.svg"

Row = Sequence[str]


def terminal(result: dict) -> str:
    """One line a task and method at the headline M, best first."""
    lines = []
    for task, best in _headline(result).items():
        for standing in best.values():
            family, least = standing.worst
            shown = (task, standing.method, short(standing.capped), f"{number(least)} ({family})", number(standing.ms))
            lines.append(shown)
    return table(("task", "method", f"worth of a node, M = {HEADLINE}", "least", "ms"), lines)


def page(result: dict) -> str:
    """The whole page, in Markdown."""
    sections = (
        _opening(result),
        _worth(result),
        _every_observation(result),
        _least(result),
        _time(result),
        _growth(result),
        _families(result),
        _stated(result),
        _held_out(result),
        _settings(result),
        _closing(result),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def tasks_of(result: dict) -> list[str]:
    """The tasks that were measured, small dimensions first."""
    seen = {row["task"] for row in result["cells"]}
    return [task for task in TASKS if task in seen]


def _headline(result: dict) -> dict[str, dict[str, Standing]]:
    return {task: best_settings(standings(result["cells"], task, HEADLINE)) for task in tasks_of(result)}


def _opening(result: dict) -> str:
    observations = ", ".join(map(str, sorted({row["observation"] for row in result["cells"]})))
    sets = result["plan"]["sets"]
    return f"""# What a node is worth on real posteriors

![How many draws one node replaces]({FIGURE})

A node is worth k when a rule of M nodes errs as little as k M independent draws: Var(f) / MSE(f) / M, over {sets} seed
sets, against the average over the pool of 10,000 draws that every method was given. The posteriors are the reference
draws of sbibm 1.1.0 (MIT), observations {observations}. Nine families of integrands in whitened coordinates:
{", ".join(FAMILIES)}. Each family's worth is capped at 10,000 / M, since no rule that sees 10,000 draws is worth more
than all of them, and the geometric mean is taken over families and observations. Brackets are 90% intervals of a
bootstrap over seed sets. A rival is shown at the setting that served it best on that very task.
**Bold: the rival beats `{DEFAULT}` there.**"""


def _matrix(
    result: dict,
    cell_of: Callable[[Standing], str],
    better: Callable[[Standing, Standing], bool],
    among: Callable[[Standing], bool] = lambda standing: True,
) -> str:
    """Methods by tasks; rivals in bold where `better(theirs, ours)`."""
    headline = {t: {k: s for k, s in best.items() if among(s)} for t, best in _headline(result).items()}
    methods = _ordered({method for best in headline.values() for method in best}, headline)
    rows = []
    for method in methods:
        row = [f"`{method}`" if method in OURS else method]
        for best in headline.values():
            standing, ours = best.get(method), best.get(DEFAULT)
            shown = cell_of(standing) if standing else "-"
            wins = standing and ours and method not in OURS and better(standing, ours)
            row.append(f"**{shown}**" if wins else shown)
        rows.append(row)
    return markdown(("", *(f"{task} ({DIMENSIONS[task]})" for task in headline)), rows)


def _ordered(methods: set[str], headline: dict[str, dict[str, Standing]]) -> list[str]:
    """Ours first, then by the mean of the logarithm of what they are worth."""

    def place(method: str) -> tuple[int, float]:
        logs = [math.log(max(best[method].capped[0], 1e-9)) for best in headline.values() if method in best]
        first = 0 if method == DEFAULT else 1 if method == DESCENT else 2
        return first, -sum(logs) / len(logs)

    return sorted(methods, key=place)


def _worth(result: dict) -> str:
    cells = _matrix(result, lambda s: short(s.capped), lambda s, ours: s.capped[0] > ours.capped[0])
    return f"## Worth of a node, M = {HEADLINE}\n\nThe dimension is in brackets after the task.\n\n{cells}"


def _every_observation(result: dict) -> str:
    """Ours on all observations, where rivals have been measured on fewer."""
    every = sorted({row["observation"] for row in result["cells"]})
    compared = compared_on(result["cells"], HEADLINE)
    if compared == every:
        return ""
    rows = []
    for task in tasks_of(result):
        ours = _ours(result, task, HEADLINE)
        if ours:
            family, least = ours.worst
            rows.append((f"{task} ({DIMENSIONS[task]})", short(ours.capped), f"{number(least)} {family}"))
    return (
        f"Rivals have been measured on observations {', '.join(map(str, compared))} alone, and every table that holds "
        f"them compares on those. `{DEFAULT}` on observations {', '.join(map(str, every))}:\n\n"
        + markdown(("", f"worth of a node, M = {HEADLINE}", "least, median over observations"), rows)
    )


def _ours(result: dict, task: str, m: int) -> Standing | None:
    """The default by itself, on all observations."""
    rows = [row for row in result["cells"] if row["method"] == DEFAULT]
    return best_settings(standings(rows, task, m)).get(DEFAULT)


def _least(result: dict) -> str:
    cells = _matrix(result, lambda s: f"{number(s.worst[1])} {s.worst[0]}", lambda s, ours: s.worst[1] > ours.worst[1])
    return (
        f"## The family in which a node is worth least, M = {HEADLINE}\n\n"
        "Median over observations, uncapped. Below 1, plain draws would have served better.\n\n" + cells
    )


def _time(result: dict) -> str:
    cells = _matrix(result, lambda s: number(s.ms), lambda s, ours: s.ms < ours.ms and 2 * s.capped[0] > ours.capped[0])
    return (
        f"## CPU milliseconds a rule, M = {HEADLINE}\n\nOne rule from one pool, one thread, after compilation; fits "
        f"and Gram matrices of the pool included. Bold: faster than `{DEFAULT}`, and worth at least half as much.\n\n"
        + cells
    )


def _growth(result: dict) -> str:
    """What `amsip default` is worth at each M on the families that are far from their cap."""
    sizes = sorted({row["m"] for row in result["cells"]})
    if len(sizes) < 2:
        return ""
    rows = []
    for task in tasks_of(result):
        row = [f"{task} ({DIMENSIONS[task]})"]
        for m in sizes:
            ours = _ours(result, task, m)
            row.append(short(geometric([ours.families[f] for f in GROWING])) if ours else "-")
        rows.append(row)
    names = ", ".join(GROWING)
    return f"## Growth with M\n\nUncapped geometric mean of {names}, `{DEFAULT}`.\n\n" + markdown(
        ("", *(f"M = {m}" for m in sizes)), rows
    )


def _families(result: dict) -> str:
    """Every family of our default and of the best rival."""
    rows = []
    for task, best in _headline(result).items():
        rivals = [s for s in best.values() if s.method not in (*OURS, PLAIN, REWEIGHTED)]
        for standing in (best.get(DEFAULT), best.get(DESCENT), *rivals[:1]):
            if standing is not None:
                cells = [short(standing.families[family]) for family in FAMILIES]
                rows.append((f"{task} ({DIMENSIONS[task]})", standing.method, *cells))
    return (
        f"## Family by family, M = {HEADLINE}\n\nUncapped, medians over observations: our arms and the best rival.\n\n"
        + markdown(("task", "method", *FAMILIES), rows)
    )


def _stated(result: dict) -> str:
    """How often the true error is within the stated one."""
    tables = [_coverage(result, key) for key in STATED]
    if not tables[0]:
        return ""
    return f"""## Stated errors

`rule.estimate(f)` of `{DEFAULT}` over all tasks, observations and seed sets: how often the true error is within the
stated one and within twice it; and quartiles of the stated over the true number of equivalent draws.

Against the average over the pool, every M: the part of the stated error that the rule itself leaves. The rule
integrates {", ".join(EXACT)} to rounding, so there the true error is always within.

{tables[0]}

Against draws that no rule saw (rules made from 5,000 draws, the others are the truth, M = {HEADLINE}): the whole
standard error, with the noise of the held-out average added. Rules of one posterior share their pool and their truth.

{tables[1]}"""


def _coverage(result: dict, key: str) -> str:
    rows = [row for row in result["cells"] if key in row]
    if not rows:
        return ""
    groups = {
        "all but indicator": [f for f in FAMILIES if f != "indicator"],
        "not exact": [f for f in FAMILIES if f not in (*EXACT, "indicator")],
        **{family: [family] for family in FAMILIES},
    }
    lines = []
    for name, families in groups.items():
        cells = [row[key][family] for row in rows for family in families]
        shares = [
            f"{100 * statistics.fmean(cell[within] for cell in cells):.0f}%" for within in ("within 1", "within 2")
        ]
        ratios = quartiles([cell["stated over true draws"] for cell in cells])
        lines.append((name, *shares, " ".join(number(q) for q in ratios)))
    return markdown(("families", "within one", "within two", "draws, stated over true"), lines)


def _held_out(result: dict) -> str:
    cells = _matrix(
        result,
        lambda s: short(s.held_out) if s.held_out else "",
        lambda s, ours: bool(s.held_out and ours.held_out and s.held_out[0] > ours.held_out[0]),
        lambda s: s.held_out is not None,
    )
    return (
        f"## Against draws no method saw, M = {HEADLINE}\n\nRules made from 5,000 of the draws, scored against the "
        f"other 5,000: here the pool's own noise counts too, and so does theirs.\n\n{cells}"
    )


def _settings(result: dict) -> str:
    rows = []
    for task, best in _headline(result).items():
        rows += [(task, s.method, s.setting) for s in best.values() if s.method not in (*OURS, PLAIN, REWEIGHTED)]
    return "## The settings shown\n\n" + markdown(("task", "rival", "setting"), rows)


def _closing(result: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in {**result["versions"], **result["rivals"]}.items())
    lines = [
        "## Where this comes from",
        "",
        f"`{result['command']}` at commit {result['commit']}, {result['date'][:10]}.",
    ]
    made = sorted({row["commit"] for row in result["cells"] if row.get("commit")})
    lines += [f"Cells were measured at {', '.join(made)}; older ones do not name their commit."] if made else []
    lines.append(f"Versions: {versions}.")
    lines += [f"Not measured: {method} ({reason})." for method, reason in result["missing"].items()]
    failed = [row for row in result["cells"] if "failed" in row]
    lines += [f"Failed: {r['method']} on {r['task']} {r['observation']}, M = {r['m']}: {r['failed']}." for r in failed]
    return "\n".join(lines)


def markdown(header: Row, rows: Sequence[Row]) -> str:
    """A table, numbers to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def quartiles(values: Sequence[float]) -> list[float]:
    """The three quartiles.

    Example:
        >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
        [2.0, 3.0, 4.0]
    """
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * list(values)


def short(interval: Sequence[float]) -> str:
    """A value with its interval."""
    value, low, high = (number(x) for x in interval)
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """Two or three digits; powers of ten from ten thousand on.

    Example:
        >>> [number(x) for x in (0.0123, 3.14159, 271.8, 31415.9)]
        ['0.012', '3.1', '272', '3e4']
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1e4:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.2g}"
