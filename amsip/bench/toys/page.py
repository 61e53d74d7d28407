"""What the measurement says, for a terminal: a table a toy, and the sentences it supports."""

from amsip.bench.base import table
from amsip.bench.toys.arms import (
    FITTED,
    FLOOR,
    OPTIMUM,
    PAPER,
    REWEIGHT,
    RIVALS,
    UNIVERSAL,
    UNIVERSAL_DESCENT,
)

LIMIT_DIMENSION = 10


def render(result: dict) -> str:
    """A table a toy, ratios of medians to the floor; the best arm of a column is starred, the optimum set apart.

    Example:
        >>> cell = {"toy": "t", "arm": "floor", "m": 4, "median": 0.5, "quartiles": [0.4, 0.6]}
        >>> "floor" in render({"cells": [cell], "missing": {}, "arms": ["floor"]})
        True
    """
    ratios = ratios_to_floor(result["cells"])
    toys = list(dict.fromkeys(cell["toy"] for cell in result["cells"]))
    parts = [_toy_table(toy, result["arms"], ratios) for toy in toys]
    failed = [c for c in result["cells"] if "failed" in c]
    parts += [f"failed: {c['arm']} on {c['toy']} at M = {c['m']}: {c['failed']}" for c in failed]
    for name, reasons in result["missing"].items():
        parts.append(f"left out: {name} on {len(reasons)} toys: {next(iter(reasons.values()))}")
    return "\n\n".join([*parts, "\n".join(sentences(ratios))])


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
    for ours in (UNIVERSAL, UNIVERSAL_DESCENT, FITTED):
        for other in (REWEIGHT, PAPER, *RIVALS):
            pairs = [
                (t, m, r, ratios[t, other, m])
                for (t, a, m), r in ratios.items()
                if a == ours and (t, other, m) in ratios
            ]
            if pairs:
                lost = [f"{t} {m} ({r / o:.2f})" for t, m, r, o in pairs if r >= o]
                lines.append(f"{ours} below {other}: {len(pairs) - len(lost)} of {len(pairs)}" + _named(lost))
        near = {
            (t, m): r / ratios[t, OPTIMUM, m]
            for (t, a, m), r in ratios.items()
            if a == ours and (t, OPTIMUM, m) in ratios
        }
        for m in sorted({m for _, m in near}):
            low = [v for (t, n), v in near.items() if n == m and dimension(t) <= LIMIT_DIMENSION]
            if low:
                lines.append(f"{ours} over optimum at M = {m}, d <= {LIMIT_DIMENSION}: at most {max(low):.2f}")
    return lines


def dimension(toy: str) -> int:
    """The number of coordinates, from the name.

    Example:
        >>> dimension("mixture-10-whitened"), dimension("banana")
        (10, 2)
    """
    return next((int(part) for part in toy.split("-") if part.isdigit()), 2)


def _toy_table(toy: str, names: list[str], ratios: dict[tuple[str, str, int], float]) -> str:
    budgets = sorted({m for t, _, m in ratios if t == toy})
    contest = [name for name in names if name not in (OPTIMUM, FLOOR)]
    best = {m: min((ratios[toy, a, m] for a in contest if (toy, a, m) in ratios), default=None) for m in budgets}
    rows = []
    for name in (*contest, OPTIMUM):
        if any((toy, name, m) in ratios for m in budgets):
            rows.append((name, *(_shown(ratios.get((toy, name, m)), best[m], name) for m in budgets)))
    return table((f"{toy}: over floor", *(f"M={m} " for m in budgets)), rows)


def _shown(ratio: float | None, best: float | None, name: str) -> str:
    if ratio is None:
        return "- "
    return f"{ratio:.3g}" + ("*" if ratio == best and name != OPTIMUM else " ")


def _named(lost: list[str]) -> str:
    if not lost:
        return ""
    return "; not on " + ", ".join(lost[:6]) + (f" and {len(lost) - 6} more" if len(lost) > 6 else "")
