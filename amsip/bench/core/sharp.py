"""The two refinements on a sharp reference: the descent that cannot climb, and the paper's damped iteration.

The reference is a Nadaraya-Watson conditional whose responsibilities sit on a handful of atoms, the regime in which
the paper's own refinement fails. Both start from the same draws and are followed step by step. The discrepancy has
many local minima there, so the descent is also shown from several starts, the least of them kept.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bandwidths import log_bandwidth
from amsip.bench.base import table
from amsip.kernels import SquaredExponential
from amsip.maps.base import NodeMap
from amsip.maps.descent import Descent, DescentStep
from amsip.maps.levenberg import read
from amsip.maps.meanshift import MeanShift
from amsip.maps.optimum import AdamDescent
from amsip.problems.toys import BASE_SEED
from amsip.references.base import Embedding
from amsip.references.conditional import Conditional

DRAWS, DIM, NODES = 4096, 8, 16
DECAY, BENDING, NOISE = 0.5, 0.2, 0.003
DAMPING, ITERATIONS, BOX = 0.5, 60, (-100.0, 100.0)
DESCENT_STEPS, ADAM_STEPS, LONG_STEPS = 100, 150, 600
STARTS = 4
CLOSE = 1.01
# of the self-affinity: a score below this share is what the ridge of the weight solve leaves of zero
ROUNDING = 1e-8
HEADER = (
    "method",
    "above start",
    "end/start",
    "worst",
    "end/best",
    "within 1% of best",
    "steps to it",
    "CPU ms a case",
)


@dataclass(frozen=True, eq=False)
class Path:
    """One method followed from every start.

    Arguments:
        name: Who.
        scores: The squared discrepancy before the first and after each step.
        seconds: CPU time of a step over all cases at once.
    """

    name: str
    scores: Float[Tensor, "steps cases"]
    seconds: float


def compare(cases: int) -> dict:
    """Both methods, and a long gradient descent that only serves to know what can be reached.

    Arguments:
        cases: The number of observations, each with its own reference and start.
    """
    embedding, starts, ess = sharp_cases(cases)
    start = starts[0]
    iteration = MeanShift(steps=1, damping=DAMPING, bounds=BOX)
    descents = [_descent(each, embedding) for each in starts]
    paths = [
        descents[0],
        _least(f"descent, best of {STARTS} starts", descents),
        _followed("algorithm 2 of the paper", iteration, start, embedding),
        _adam(start, embedding, ADAM_STEPS),
    ]
    best = torch.stack([_long(start, embedding), *(path.scores.min(0).values for path in paths)]).min(0).values
    return {
        "cases": cases,
        "nodes": NODES,
        "dim": DIM,
        "ess": float(ess.median()),
        "rows": [_row(path, best, ROUNDING * embedding.energy) for path in paths],
    }


def sharp_cases(cases: int) -> tuple[Embedding, Float[Tensor, "starts cases m d"], Float[Tensor, "cases"]]:
    """The embeddings of held-out observations, seeds drawn by weight with replacement, and the effective sizes.

    Example:
        >>> embedding, starts, ess = sharp_cases(2)
        >>> starts.shape
        torch.Size([4, 2, 16, 8])
    """
    generator = torch.Generator().manual_seed(BASE_SEED)
    rows = DRAWS + cases
    x = torch.randn(rows, DIM, generator=generator, dtype=torch.float64)
    gain = torch.arange(1, DIM + 1, dtype=torch.float64) ** -DECAY
    y = gain * (x + BENDING * torch.sin(2.0 * x.roll(1, -1)))
    y = y + NOISE * torch.randn(rows, DIM, generator=generator, dtype=torch.float64)
    conditional = Conditional(x[:DRAWS], y[:DRAWS])
    posterior = conditional.given(y[DRAWS:])
    kernel = SquaredExponential(float(log_bandwidth(x[:DRAWS])))
    starts = torch.stack([posterior.sample(NODES, generator=generator) for _ in range(STARTS)])
    return posterior.embed(kernel), starts, conditional.truncation(y[DRAWS:]).ess


def render(result: dict) -> str:
    """One line a method.

    Example:
        >>> render({"note": "not run"})
        'not run'
    """
    if "rows" not in result:
        return str(result["note"])
    return f"{title(result)}\n{table(HEADER, rows(result))}"


def title(result: dict) -> str:
    """What was compared.

    Example:
        >>> title({"cases": 2, "nodes": 16, "dim": 8, "ess": 14.2})
        'Sharp conditionals: 2 cases, M = 16, d = 8, effective sample size 14 in the median.'
    """
    return (
        f"Sharp conditionals: {result['cases']} cases, M = {result['nodes']}, d = {result['dim']}, "
        f"effective sample size {result['ess']:.0f} in the median."
    )


def rows(result: dict) -> list[tuple[object, ...]]:
    """The cells of each method, under `HEADER`."""
    return [
        (
            r["method"],
            f"{r['above_start']} of {result['cases']}",
            f"{r['end_over_start']:.3f}",
            f"{r['worst_over_start']:.3f}",
            f"{r['end_over_best']:.3f}",
            f"{r['share_close']:.0%}",
            "-" if r["steps_to_close"] is None else f"{r['steps_to_close']:.0f}",
            "-" if r["milliseconds_to_close"] is None else f"{r['milliseconds_to_close']:.1f}",
        )
        for r in result["rows"]
    ]


def _descent(start: Tensor, embedding: Embedding) -> Path:
    trace: list[DescentStep] = []
    # the clock includes the trace, whose eigenvalues cost a few percent
    seconds = _seconds(lambda: Descent(steps=DESCENT_STEPS, tolerance=0.0, callback=trace.append)(start, embedding))
    scores = torch.stack([step.loss for step in trace]) + embedding.energy
    # rested cases stay where they are, so that paths of several starts have one length
    scores = torch.cat([scores, scores[-1:].expand(DESCENT_STEPS + 1 - len(scores), -1)])
    return Path("descent", scores, seconds / (len(trace) - 1))


def _least(name: str, paths: Sequence[Path]) -> Path:
    """The best of several starts at every step, for the time of them all."""
    scores = torch.stack([path.scores for path in paths]).amin(0)
    return Path(name, scores, sum(path.seconds for path in paths))


def _followed(name: str, step: NodeMap, start: Tensor, embedding: Embedding) -> Path:
    nodes, scores, seconds = start, [read(start, embedding).loss], 0.0
    for _ in range(ITERATIONS):
        began = time.process_time()
        nodes = step(nodes, embedding)
        seconds += time.process_time() - began
        scores.append(read(nodes, embedding).loss)
    return Path(name, torch.stack(scores) + embedding.energy, seconds / ITERATIONS)


def _adam(start: Tensor, embedding: Embedding, steps: int) -> Path:
    ends = [read(start, embedding).loss, read(AdamDescent(steps=steps)(start, embedding), embedding).loss]
    seconds = _seconds(lambda: AdamDescent(steps=steps)(start, embedding))
    return Path(f"{steps} steps of Adam", torch.stack(ends) + embedding.energy, seconds)


def _long(start: Tensor, embedding: Embedding) -> Tensor:
    nodes = AdamDescent(steps=LONG_STEPS, rate=0.01)(AdamDescent(steps=LONG_STEPS)(start, embedding), embedding)
    return read(nodes, embedding).loss + embedding.energy


def _row(path: Path, best: Float[Tensor, "cases"], rounding: Float[Tensor, "cases"]) -> dict:
    start, end = path.scores[0], path.scores[-1]
    close = path.scores <= CLOSE * best + rounding
    # a start that is exact already has nothing to gain: its ratio is one, not zero over zero
    gain = (end + rounding) / (start + rounding)
    reached = close.any(0)
    steps = close.to(torch.uint8).argmax(0)[reached]
    median = float(steps.to(torch.float64).median()) if bool(reached.any()) else None
    single = len(path.scores) == 2
    return {
        "method": path.name,
        "above_start": int((end > start).sum()),
        "end_over_start": float(gain.median()),
        "worst_over_start": float(gain.max()),
        "end_over_best": float(((end + rounding) / (best + rounding)).median()),
        "share_close": float(reached.to(torch.float64).mean()),
        "steps_to_close": None if single else median,
        "milliseconds_to_close": None if median is None else 1e3 * median * path.seconds / len(best),
    }


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
