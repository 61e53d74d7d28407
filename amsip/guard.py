"""The promise of every emission: never worse than the reweighted samples it came from."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import loss
from amsip.finishing import match_moments, sees_covariances
from amsip.references.base import Embedding
from amsip.rules import Rule
from amsip.weights import gram_and_mean, solve_weights, uniform_weights


@dataclass(frozen=True, eq=False)
class Candidate:
    """Nodes with weights, and what they leave of the discrepancy (in float64, without the reference's constant).

    Example:
        >>> Candidate(torch.zeros(1, 1), torch.ones(1), torch.tensor(-1.0)).loss.item()
        -1.0
    """

    nodes: Float[Tensor, "*q m d"]
    weights: Float[Tensor, "*q m"]
    loss: Float[Tensor, "*q"]


def weighed(nodes: Float[Tensor, "*q m d"], embedding: Embedding, *, total: float = 1.0) -> tuple[Candidate, Candidate]:
    """The nodes under equal and under optimal weights, by one reading of the embedding.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0], [2.0]])
        >>> equal, optimal = weighed(atoms[:2], Samples(atoms).embed(SquaredExponential(1.0)))
        >>> bool(optimal.loss < equal.loss)
        True
    """
    gram, mean = gram_and_mean(nodes, embedding)
    ones = torch.ones_like(mean)
    optimal = solve_weights(gram, mean, ones[..., None], total * ones[..., :1]).to(nodes)
    equal = uniform_weights(nodes) * total
    # the weights are judged as they will be handed out, in the nodes' own precision
    first, second = (Candidate(nodes, w, loss(gram, mean, w.to(mean))) for w in (equal, optimal))
    return first, second


def guarded(candidates: Sequence[Candidate], embedding: Embedding) -> Rule:
    """Per query, the candidate of least discrepancy.

    Arguments:
        candidates: In the order of `rules.EMISSIONS`.
        embedding: What the candidates were scored against.

    Returns:
        A rule whose `emission` says which candidate was kept, query by query.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0], [2.0]])
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0))
        >>> far, near = (weighed(z, embedding)[1] for z in (torch.full((1, 1), 50.0), atoms[1:2]))
        >>> guarded([far, near], embedding).emission.item()
        1
    """
    best = torch.stack([c.loss for c in candidates]).nan_to_num(nan=torch.inf).argmin(0)
    nodes, weights = torch.stack([c.nodes for c in candidates]), torch.stack([c.weights for c in candidates])
    return Rule(_pick(nodes, best), _pick(weights, best), embedding, best)


def finite_or_seeds(nodes: Float[Tensor, "*q m d"], seeds: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m d"]:
    """The moved nodes, but the seeds in a query whose nodes are not all finite, so that it spoils no other query.

    Example:
        >>> finite_or_seeds(torch.tensor([[[torch.nan]], [[2.0]]]), torch.tensor([[[0.0]], [[1.0]]])).flatten()
        tensor([0., 2.])
    """
    return torch.where(torch.isfinite(nodes).flatten(-2).all(-1)[..., None, None], nodes, seeds)


def finished(rule: Rule, promise: Float[Tensor, "*q"], embedding: Embedding) -> Rule:
    """The rule with its mean and covariance made exact, in the queries where the kernel asks and the promise is kept.

    Arguments:
        rule: What the guard kept.
        promise: The loss of the reweighted seeds, which no emission may exceed.
        embedding: What both are scored against.

    Example:
        >>> from amsip import Polynomial, Samples, SquaredExponential
        >>> atoms = torch.tensor([[-1.0], [0.0], [1.0]])
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0) + Polynomial(2))
        >>> rough = Rule(torch.tensor([[-0.7], [0.9]]), torch.tensor([0.5, 0.5]), embedding)
        >>> finished(rough, weighed(atoms[:2], embedding)[1].loss, embedding).mean().abs().item() < 1e-7
        True
    """
    asked = sees_covariances(embedding.kernel)
    if not bool(asked.any()):
        return rule
    nodes = finite_or_seeds(match_moments(rule.nodes, rule.weights, embedding.moments), rule.nodes)
    gram, mean = gram_and_mean(nodes, embedding)
    kept = asked & (loss(gram, mean, rule.weights.to(mean)) <= promise)
    return dataclasses.replace(rule, nodes=torch.where(kept[..., None, None], nodes, rule.nodes))


def _pick(stacked: Tensor, best: Tensor) -> Tensor:
    index = best[(None, ..., *(None,) * (stacked.ndim - 1 - best.ndim))]
    return stacked.gather(0, index.expand(1, *stacked.shape[1:]))[0]
