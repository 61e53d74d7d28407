"""The paper's per-query refinement: nodes and weights together, from an emission or from nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.maps.levenberg import State, read
from amsip.maps.meanshift import MeanShift
from amsip.maps.readings import SmoothedScore
from amsip.references.base import Embedding
from amsip.rules import Rule
from amsip.weights import optimal_weights


@dataclass(frozen=True, eq=False)
class RefineStep:
    """What a step of the refinement reports to its callback, one entry a query.

    Arguments:
        step: Which step, the start being 0.
        mmd2: The squared discrepancy under optimal unit-sum weights.
        ess: The effective sample size of those weights.
        gram_rank: How many eigenvalues of the Gram exceed 1e-8 of its mean diagonal.
        score_evaluations: How often the score of one query has been evaluated so far.

    Example:
        >>> RefineStep(0, torch.zeros(1), torch.ones(1), torch.ones(1), 0).score_evaluations
        0
    """

    step: int
    mmd2: Float[Tensor, "*q"]
    ess: Float[Tensor, "*q"]
    gram_rank: Float[Tensor, "*q"]
    score_evaluations: int


def refine(
    nodes: Float[Tensor, "*q m d"],
    embedding: Embedding,
    mean_shift: MeanShift,
    *,
    callback: Callable[[RefineStep], None] | None = None,
) -> Rule:
    r"""Resumes the damped mean shift from given nodes and solves the weights anew at the end.

    $$z^{(t)} = (1 - \lambda) z^{(t-1)} + \lambda \Psi(z^{(t-1)}), \qquad
      w = (K + \varepsilon I)^{-1} (v_0 + \kappa 1)$$

    Algorithm 2 of the paper. The resource is the reading of the mean shift: the embedding as it stands, `FreshSamples`
    (score-free) or `SmoothedScore` (score-based). Warm where the nodes are an emission, cold where they are draws. The
    discrepancy can rise on the way, and on a reference that is sharp for the bandwidth the nodes collapse; `Descent`
    does neither.

    Arguments:
        nodes: The nodes to start from.
        embedding: What the weights are solved against and the trace is scored with.
        mean_shift: Steps, damping, box, ridge and resource.
        callback: Receives a `RefineStep` for the start and after every step.

    Returns:
        The refined rule; its emission is not set, for no guard has judged it.

    Example:
        >>> from amsip import Gaussian, SquaredExponential
        >>> posterior = Gaussian(torch.zeros(1), 4.0 * torch.eye(1))
        >>> score = SmoothedScore(posterior.log_prob, posterior.score, 50, torch.Generator().manual_seed(0))
        >>> trace: list[RefineStep] = []
        >>> start = posterior.sample(4, generator=torch.Generator().manual_seed(1))
        >>> embedding = posterior.embed(SquaredExponential(1.0))
        >>> rule = refine(start, embedding, MeanShift(steps=10, jitter=1e-3, reading=score), callback=trace.append)
        >>> trace[-1].score_evaluations, bool(trace[-1].mmd2 < trace[0].mmd2)
        (2000, True)
    """
    per_step = evaluations_per_step(mean_shift, nodes.shape[-2])
    with torch.no_grad():
        _report(callback, 0, nodes, embedding, mean_shift, 0)
        for step in range(1, mean_shift.steps + 1):
            nodes = mean_shift.step(nodes, embedding)
            _report(callback, step, nodes, embedding, mean_shift, step * per_step)
        return Rule(nodes, optimal_weights(nodes, embedding, jitter=mean_shift.jitter), embedding)


def evaluations_per_step(mean_shift: MeanShift, m: int) -> int:
    """How many evaluations of the score one step of m nodes costs: m Q, or none.

    Example:
        >>> evaluations_per_step(MeanShift(), 8)
        0
    """
    _checks.budget(m)
    return m * mean_shift.reading.inner if isinstance(mean_shift.reading, SmoothedScore) else 0


def gram_rank(gram: Float[Tensor, "*q m m"]) -> Float[Tensor, "*q"]:
    """How many eigenvalues exceed 1e-8 of the mean diagonal.

    Example:
        >>> gram_rank(torch.ones(3, 3, dtype=torch.float64)).item()
        1.0
    """
    spectrum = torch.linalg.eigvalsh(gram)
    return (spectrum > 1e-8 * spectrum.mean(-1, keepdim=True)).to(gram).sum(-1)


def _report(
    callback: Callable[[RefineStep], None] | None,
    step: int,
    nodes: Tensor,
    embedding: Embedding,
    mean_shift: MeanShift,
    evaluations: int,
) -> None:
    if callback is None:
        return
    state: State = read(nodes, embedding, mean_shift.jitter)
    ess = state.weights.sum(-1).square() / state.weights.square().sum(-1)
    callback(RefineStep(step, state.loss + embedding.energy, ess, gram_rank(state.gram), evaluations))
