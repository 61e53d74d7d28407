"""Verdicts that several experiments reach in the same way."""

from collections.abc import Sequence

from amsip.paper.base import Data, Finding, Verdict


def largest_ratio(rows: Sequence[Data], arm: str) -> Data:
    """The row in which an arm is closest to the floor, or furthest above it.

    Example:
        >>> largest_ratio([{"arm": "warm", "ratio": r} for r in (0.2, 0.9)], "warm")["ratio"]
        0.9
    """
    return max((row for row in rows if row["arm"] == arm), key=lambda row: row["ratio"])


def below_floor(rows: Sequence[Data], arm: str, note: str) -> Finding:
    """Whether an arm is below the floor in every row beyond doubt: the worst ratio of medians, with its interval.

    Arguments:
        rows: As `amsip.paper.arms.summary` gives them.
        arm: Which.
        note: What the margin is relative to.

    Example:
        >>> rows = [{"arm": "warm", "ratio": 0.8, "ratio_interval": [0.7, 0.9], "m": 4}]
        >>> below_floor(rows, "warm", "exact mean").verdict.value
        'holds'
    """
    worst = largest_ratio(rows, arm)
    low, high = worst["ratio_interval"]
    return Finding(surely_below(rows, arm), worst["ratio"], (low, high), f"Worst cell{place(worst)}. {note}")


def surely_below(rows: Sequence[Data], arm: str, bound: float = 1.0) -> Verdict:
    """Holds if the whole interval of every row is under a bound, fails if that of any row is above it.

    Example:
        >>> rows = [{"arm": "warm", "ratio_interval": pair} for pair in ([0.4, 0.6], [0.9, 1.1])]
        >>> surely_below(rows, "warm").value
        'holds with a condition'
    """
    intervals = [row["ratio_interval"] for row in rows if row["arm"] == arm]
    return verdict_of(all(high < bound for _, high in intervals), all(low < bound for low, _ in intervals))


def place(row: Data) -> str:
    """Which cell a row is.

    Example:
        >>> place({"toy": "banana", "m": 8})
        ': banana, M = 8'
    """
    parts = [*([row["toy"]] if "toy" in row else []), f"M = {row['m']}"]
    return ": " + ", ".join(parts)


def verdict_of(holds: bool, condition: bool = False) -> Verdict:
    """Holds, holds with a condition, or does not hold.

    Example:
        >>> verdict_of(False, condition=True).value
        'holds with a condition'
    """
    return Verdict.HOLDS if holds else Verdict.CONDITION if condition else Verdict.FAILS


def ratio_of(rows: Sequence[Data], above: str, below: str, m: int) -> float:
    """The ratio of two arms at a budget, of rows that are all of one target.

    Each is taken relative to the floor on its own sets: an arm that iterates may have been scored on the first few
    of the sets alone, and medians over different sets do not compare.

    Example:
        >>> rows = [{"arm": "warm", "m": 4, "ratio": 0.25}, {"arm": "finetuned", "m": 4, "ratio": 0.5}]
        >>> ratio_of(rows, "warm", "finetuned", 4)
        0.5
    """
    ratios = {(row["arm"], row["m"]): row["ratio"] for row in rows}
    return float(ratios[above, m] / ratios[below, m])


def several(values: Sequence[float]) -> str:
    """Numbers for a sentence.

    Example:
        >>> several([0.5, 0.25])
        '0.5, 0.25'
    """
    return ", ".join(f"{value:.2g}" for value in values)
