"""What an experiment of the paper is: a computation, a drawing, one line, and the sentences that it decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = dict[str, Any]
DIGITS = 6


class Verdict(StrEnum):
    """What a measurement says about a sentence of the paper."""

    HOLDS = "holds"
    CONDITION = "holds with a condition"
    FAILS = "does not hold"
    UNTESTABLE = "not testable"


@dataclass(frozen=True)
class Run:
    """What a computation is given.

    Arguments:
        quick: The version of at most a minute, for CI.
        folder: The cache for trained maps, simulated banks and finished parts, so that a run that was cut resumes.
        report: Told what happens, a line at a time.
        again: Finished parts are computed anew.
    """

    quick: bool
    folder: Path
    report: Callable[[str], None]
    again: bool = False


@dataclass(frozen=True)
class Finding:
    """The outcome of a check.

    Arguments:
        verdict: Whether the sentence holds.
        number: The headline number.
        interval: Its uncertainty.
        note: What it is relative to; the condition; what our default does on the same work.
    """

    verdict: Verdict
    number: float | None
    interval: tuple[float, float] | None
    note: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and how it is checked.

    Arguments:
        name: Short and unique, such as "toys-below-floor".
        sentence: The claim, in our words.
        place: Where the paper makes it, such as "section 7.1, fig:dq-mmd".
        measured: How it is measured, in one line.
        check: From the experiment's data to the outcome.
    """

    name: str
    sentence: str
    place: str
    measured: str
    check: Callable[[Data], Finding]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Arguments:
        label: The paper's label without "fig:".
        title: What it shows.
        minutes: Of a full run on one core, trained maps included.
        compute: From a run to data that JSON can hold.
        draw: Puts the data on a matplotlib figure, whose size it sets.
        headline: The result in one line.
        claims: The sentences it decides.
    """

    label: str
    title: str
    minutes: float
    compute: Callable[[Run], Data]
    draw: Callable[[Data, "Figure"], None]
    headline: Callable[[Data], str]
    claims: tuple[Claim, ...]


def plain(value: Any) -> Any:
    """Tensors, arrays and numbers as JSON holds them, rounded to six significant digits.

    Raises:
        ValueError: A number is not finite: data says what is missing by leaving it out, or by None.

    Example:
        >>> import torch
        >>> plain({"scores": torch.tensor([1.0, 2.0 / 3.0], dtype=torch.float64), "sets": 3})
        {'scores': [1.0, 0.666667], 'sets': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        if not np.isfinite(value):
            raise ValueError(f"Data of an experiment must be finite: got {value}.")
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value
