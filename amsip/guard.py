"""The promise of every emission: never worse than the reweighted samples it came from."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import loss
from amsip.finishing import match_moments
from amsip.references.base import Embedding
from amsip.rules import Rule


def guarded(
    candidates: list[tuple[Float[Tensor, "*q m d"], Float[Tensor, "*q m"]]],
    embedding: Embedding,
) -> Rule:
    """Per query, the candidate of least discrepancy.

    Arguments:
        candidates: Nodes and weights, in the order of `rules.EMISSIONS`.
        embedding: What the candidates are scored against.

    Returns:
        A rule whose `emission` says which candidate was kept, query by query.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0], [2.0]])
        >>> near, far = atoms[1:2], torch.full((1, 1), 50.0)
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0))
        >>> guarded([(far, torch.ones(1)), (near, torch.ones(1))], embedding).emission.item()
        1
    """
    nodes = torch.stack([z for z, _ in candidates])
    weights = torch.stack([w for _, w in candidates])
    scores = torch.stack([_score(z.to(torch.float64), w.to(torch.float64), embedding) for z, w in candidates])
    best = scores.nan_to_num(nan=torch.inf).argmin(0)
    return Rule(_pick(nodes, best), _pick(weights, best), embedding, best)


def finite_or_seeds(nodes: Float[Tensor, "*q m d"], seeds: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m d"]:
    """The moved nodes, but the seeds in a query whose nodes are not all finite, so that it spoils no other query.

    Example:
        >>> finite_or_seeds(torch.tensor([[[torch.nan]], [[2.0]]]), torch.tensor([[[0.0]], [[1.0]]])).flatten()
        tensor([0., 2.])
    """
    return torch.where(torch.isfinite(nodes).flatten(-2).all(-1)[..., None, None], nodes, seeds)


def finished(
    rule: Rule, reweighted: tuple[Float[Tensor, "*q m d"], Float[Tensor, "*q m"]], embedding: Embedding
) -> Rule:
    """The rule with its mean and covariance made exact, in the queries where that keeps the promise.

    Arguments:
        rule: What the guard kept.
        reweighted: The reweighted seeds, which no emission may be worse than.
        embedding: What both are scored against.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[-1.0], [0.0], [1.0]])
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0))
        >>> rough = Rule(torch.tensor([[-0.7], [0.9]]), torch.tensor([0.5, 0.5]), embedding)
        >>> finished(rough, (atoms[:2], torch.tensor([0.5, 0.5])), embedding).mean().abs().item() < 1e-7
        True
    """
    nodes = finite_or_seeds(match_moments(rule.nodes, rule.weights, embedding.moments), rule.nodes)
    seeds, weights = (part.to(torch.float64) for part in reweighted)
    promise = _score(seeds, weights, embedding)
    kept = _score(nodes.to(torch.float64), rule.weights.to(torch.float64), embedding) <= promise
    return dataclasses.replace(rule, nodes=torch.where(kept[..., None, None], nodes, rule.nodes))


def _score(nodes: Tensor, weights: Tensor, embedding: Embedding) -> Tensor:
    return loss(embedding.kernel.gram(nodes), embedding.mean(nodes), weights)


def _pick(stacked: Tensor, best: Tensor) -> Tensor:
    index = best[(None, ..., *(None,) * (stacked.ndim - 1 - best.ndim))]
    return stacked.gather(0, index.expand(1, *stacked.shape[1:]))[0]
