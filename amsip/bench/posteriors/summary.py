"""Cells into numbers a table can show: over observations, at each rival's best setting."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amsip.bench.posteriors.integrands import FAMILIES

Interval = tuple[float, float, float]
DIGITS = 4
STATED = ("stated", "stated held-out")


@dataclass(frozen=True)
class Standing:
    """One method at one setting on one task at one M, over the observations.

    Arguments:
        method: The arm.
        setting: The kernel it was given and the weights it kept.
        capped: Geometric mean over families (capped) and observations, with a 90% interval over seed sets.
        held_out: The same, made from half of the draws and scored against the other half, where measured.
        families: Per family, the median over observations of the raw multiplier and of its interval's ends.
        ms: CPU milliseconds a rule, the median over observations.
    """

    method: str
    setting: str
    capped: Interval
    held_out: Interval | None
    families: dict[str, Interval]
    ms: float

    @property
    def worst(self) -> tuple[str, float]:
        """The family in which it is worth least."""
        return min(((family, v[0]) for family, v in self.families.items()), key=lambda pair: pair[1])


def read_cells(folder: Path, observations: Sequence[int]) -> list[dict]:
    """One row for each setting of each finished cell, numbers rounded."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        cell = json.loads(path.read_text())
        if cell["observation"] not in observations:
            continue
        known = {key: cell[key] for key in ("task", "observation", "m", "method")} | {"commit": cell.get("commit")}
        if "failed" in cell:
            rows.append({**known, "setting": cell["kernel"], "failed": cell["failed"]})
            continue
        for weights, score in cell["settings"].items():
            row = {**known, "setting": setting_name(cell["kernel"], weights), "ms": _rounded(cell["ms"])}
            rows.append({**row, **_rounded(score), **{key: _rounded(cell[key]) for key in STATED if key in cell}})
    return rows


def setting_name(kernel: str, weights: str) -> str:
    """What a table says of a setting.

    Example:
        >>> setting_name("median", "own")
        'median kernel, own weights'
    """
    return ", ".join(part for part in (kernel and f"{kernel} kernel", f"{weights} weights") if part)


def standings(rows: Iterable[dict], task: str, m: int) -> list[Standing]:
    """Every method at every setting, best first."""
    here = [row for row in rows if row["task"] == task and row["m"] == m and "failed" not in row]
    # everybody is compared on the same posteriors
    shared = compared_on(here, m)
    grouped: dict[tuple[str, str], list[dict]] = {}
    for row in here:
        group = grouped.setdefault((row["method"], row["setting"]), [])
        if row["observation"] in shared:
            group.append(row)
    whole = {key: group for key, group in grouped.items() if len(group) == len(shared)}
    return sorted((_standing(*key, group) for key, group in whole.items()), key=lambda s: -s.capped[0])


def compared_on(rows: Iterable[dict], m: int) -> list[int]:
    """The observations on which most methods have been measured.

    Example:
        >>> rows = [{"method": k, "setting": "", "observation": o, "m": 8} for k, o in (("a", 1), ("a", 2), ("b", 1))]
        >>> compared_on(rows, 8)
        [1]
    """
    here = [row for row in rows if row["m"] == m and "failed" not in row]
    methods = {(row["method"], row["setting"]) for row in here}
    pairs = {(row["method"], row["setting"], row["observation"]) for row in here}
    seen = Counter(observation for _, _, observation in pairs)
    return sorted(observation for observation, count in seen.items() if 2 * count > len(methods))


def best_settings(ranked: Sequence[Standing]) -> dict[str, Standing]:
    """Each method at the setting that served it best on this very task: a choice in the rival's favour."""
    best: dict[str, Standing] = {}
    for standing in ranked:
        best.setdefault(standing.method, standing)
    return best


def geometric(intervals: Sequence[Interval]) -> Interval:
    """The geometric mean of independent estimates, with the interval their own intervals give it.

    Example:
        >>> value, low, high = geometric([(2.0, 1.0, 4.0), (8.0, 4.0, 16.0)])
        >>> round(value, 6), round(low * high, 6)
        (4.0, 16.0)
    """
    values = [v for v in intervals if all(math.isfinite(x) and x > 0 for x in v)]
    if len(values) < len(intervals) or not values:
        return math.nan, math.nan, math.nan
    centre = statistics.fmean(math.log(v[0]) for v in values)
    below = math.sqrt(sum(math.log(v[0] / v[1]) ** 2 for v in values)) / len(values)
    above = math.sqrt(sum(math.log(v[2] / v[0]) ** 2 for v in values)) / len(values)
    return math.exp(centre), math.exp(centre - below), math.exp(centre + above)


def _standing(method: str, setting: str, group: Sequence[dict]) -> Standing:
    families = {
        family: tuple(statistics.median(row["pool"]["raw"][family][end] for row in group) for end in range(3))
        for family in FAMILIES
    }
    return Standing(
        method,
        setting,
        geometric([tuple(row["pool"]["capped"]) for row in group]),
        geometric([tuple(row["held_out"]["capped"]) for row in group]) if "held_out" in group[0] else None,
        families,
        statistics.median(row["ms"] for row in group),
    )


def _rounded(value: Any) -> Any:
    """Four significant digits, in depth."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return value
