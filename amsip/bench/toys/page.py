"""What the measurement says, for a terminal and for the page `toys.md`: a table a toy, and sentences it supports."""

from collections.abc import Iterator

from amsip.bench.base import markdown, origin, table
from amsip.bench.toys import bars, endings, repeats
from amsip.bench.toys.arms import FITTED, FITTED_DESCENT, FLOOR, OPTIMUM, PAPER, REWEIGHT, RIVALS
from amsip.bench.toys.fitted import SLUGS, UNROLLED_SECONDS
from amsip.bench.toys.measure import HELD_OUT


def render(result: dict) -> str:
    """A table a toy, ratios of medians to the floor; the best arm of a column is starred, the optimum set apart.

    Example:
        >>> cell = {"toy": "t", "arm": "floor", "m": 4, "median": 0.5, "quartiles": [0.4, 0.6]}
        >>> "floor" in render({"cells": [cell], "missing": {}, "arms": ["floor"]})
        True
    """
    ratios = ratios_to_floor(result["cells"])
    tables = [table(*_toy_table(toy, result["arms"], ratios)) for toy in toys_of(result)]
    lines = [*_troubles(result), *sentences(ratios), *bars.counts(bars.over_optimum(result["cells"]))]
    return "\n\n".join([*tables, "\n".join(lines)])


def page(result: dict) -> str:
    """The whole page, in Markdown."""
    ratios = ratios_to_floor(result["cells"])
    sets = max(cell["stamp"]["of"] for cell in result["cells"])
    opening = (
        "# Every way of choosing nodes, on the paper's toys\n\n"
        f"All arms start from the same seeds and are scored against the same embedding; {sets} seed sets a cell (the "
        "dear arms fewer: the number stands in the JSON beside every cell). A number is the median of MMD² as a ratio "
        "to the median of the seeds at equal weights (the floor). All weights are optimal ones of unit sum. The best "
        "arm of a column is starred; the *optimum* stands apart: the best of four long descents of each set by "
        "itself. *paper's map* and *fitted map* were trained on the toy at hand, one network a toy; *universal* is one "
        "pass of the shipped network, which never saw a toy; *default map* is that network and the descent steps that "
        f"`amsip.quadrature` adds; *{FITTED_DESCENT}* ends the fitted map in the same way (`amsip.maps.chain`). "
        "M = 6, 24, 48 and 96 are budgets the paper's map was not trained at. A toy without a suffix is at the "
        "paper's bandwidth, *whitened* at the square root of the dimension in whitened coordinates."
    )
    said = "\n".join(f"- {line}" for line in (*_troubles(result), *sentences(ratios)))
    tables = [f"## {toy}\n\n" + markdown(*_toy_table(toy, result["arms"], ratios)) for toy in toys_of(result)]
    optima = {(c["toy"], c["m"]): c["median"] for c in result["cells"] if c["arm"] == OPTIMUM and "median" in c}
    asked = bars.section(bars.over_optimum(result["cells"]))
    sections = (
        fits(result.get("maps", [])),
        repeats.paragraph(result.get("studies", {}).get("repeats", [])),
        endings.section(result.get("studies", {}).get("endings", []), optima),
    )
    return "\n\n".join([opening, said, *filter(None, [asked]), *tables, *filter(None, sections), origin(result)]) + "\n"


def toys_of(result: dict) -> list[str]:
    """The toys of a result, in its order.

    Example:
        >>> toys_of({"cells": [{"toy": "b"}, {"toy": "a"}, {"toy": "b"}]})
        ['b', 'a']
    """
    return list(dict.fromkeys(cell["toy"] for cell in result["cells"]))


def _troubles(result: dict) -> Iterator[str]:
    for c in result["cells"]:
        if "failed" in c:
            yield f"failed: {c['arm']} on {c['toy']} at M = {c['m']}: {c['failed']}"
    yield from absent(result)
    for name, reasons in result["missing"].items():
        yield f"left out: {name} on {len(reasons)} toys: {next(iter(reasons.values()))}"


def absent(result: dict) -> Iterator[str]:
    """The cells that nobody measured, arms with the same gaps together.

    Example:
        >>> list(absent({"toys": ["t"], "nodes": [4, 6], "arms": ["floor"], "dear": [], "cells": [], "missing": {}}))
        ['not measured: floor on t']
    """
    there = {(c["toy"], c["arm"], c["m"]) for c in result["cells"]}
    without: dict[str, list[str]] = {}
    for arm in result["arms"]:
        budgets = [m for m in result.get("nodes", ()) if not (arm in result["dear"] and m in HELD_OUT)]
        gaps = []
        for toy in result.get("toys", ()):
            lost = [m for m in budgets if (toy, arm, m) not in there]
            if lost and toy not in result["missing"].get(arm, {}):
                gaps.append(toy if len(lost) == len(budgets) else f"{toy} (M = {', '.join(map(str, lost))})")
        if gaps:
            without.setdefault(", ".join(gaps), []).append(arm)
    for toys, arms in without.items():
        yield f"not measured: {', '.join(arms)} on {toys}"


def ratios_to_floor(cells: list[dict]) -> dict[tuple[str, str, int], float]:
    """The median score of each (toy, arm, M) as a ratio to the median floor.

    Example:
        >>> cells = [{"toy": "t", "arm": a, "m": 4, "median": v} for a, v in (("floor", 2.0), ("reweight", 1.0))]
        >>> ratios_to_floor(cells)["t", "reweight", 4]
        0.5
    """
    medians = {(c["toy"], c["arm"], c["m"]): c["median"] for c in cells if "median" in c}
    return {(t, a, m): v / medians[t, FLOOR, m] for (t, a, m), v in medians.items() if (t, FLOOR, m) in medians}


def sentences(ratios: dict[tuple[str, str, int], float]) -> list[str]:
    """How often one arm is below another, cell by cell.

    Example:
        >>> sentences({})
        []
    """
    lines = []
    for ours in bars.ARMS:
        for other in (REWEIGHT, PAPER, *RIVALS):
            pairs = [
                (t, m, r, ratios[t, other, m])
                for (t, a, m), r in ratios.items()
                if a == ours and (t, other, m) in ratios
            ]
            if pairs:
                lost = [f"{t} {m} ({r / o:.2f})" for t, m, r, o in pairs if r >= o]
                lines.append(f"{ours} below {other}: {len(pairs) - len(lost)} of {len(pairs)}" + _named(lost))
    return lines


def fits(maps: list[dict]) -> str:
    """How long the maps of each toy were fitted.

    Example:
        >>> fits([{"toy": "banana", "map": "paper", "seconds": 8.1, "steps": 3}]).splitlines()[-1]
        '| banana | 8 s, 3 steps | - |'
    """
    if not maps:
        return ""
    found = {(one["toy"], one["map"]): f"{one['seconds']:.0f} s, {one['steps']} steps" for one in maps}
    rows = [(toy, *(found.get((toy, slug), "-") for slug in SLUGS)) for toy in dict.fromkeys(toy for toy, _ in found)]
    return (
        "## What fitting took\n\nWall time on a machine that had other work to do; the fitted map starts from the "
        "shipped network and has at most the time of the paper's map, and at most "
        f"{UNROLLED_SECONDS:.0f} s.\n\n" + markdown(("", PAPER, FITTED), rows)
    )


def _toy_table(
    toy: str, names: list[str], ratios: dict[tuple[str, str, int], float]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    budgets = sorted({m for t, _, m in ratios if t == toy})
    contest = [name for name in names if name not in (OPTIMUM, FLOOR)]
    best = {m: min((ratios[toy, a, m] for a in contest if (toy, a, m) in ratios), default=None) for m in budgets}
    rows: list[tuple[str, ...]] = []
    for name in (*contest, OPTIMUM):
        if any((toy, name, m) in ratios for m in budgets):
            rows.append((name, *(_shown(ratios.get((toy, name, m)), best[m], name) for m in budgets)))
    return (f"{toy}: over floor", *(f"M={m} " for m in budgets)), rows


def _shown(ratio: float | None, best: float | None, name: str) -> str:
    if ratio is None:
        return "- "
    return f"{ratio:.3g}" + ("*" if ratio == best and name != OPTIMUM else " ")


def _named(lost: list[str]) -> str:
    if not lost:
        return ""
    return "; not on " + ", ".join(lost[:6]) + (f" and {len(lost) - 6} more" if len(lost) > 6 else "")
