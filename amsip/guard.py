"""The promise of every emission: never worse than the reweighted samples it came from."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import loss
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


def _score(nodes: Tensor, weights: Tensor, embedding: Embedding) -> Tensor:
    return loss(embedding.kernel.gram(nodes), embedding.mean(nodes), weights)


def _pick(stacked: Tensor, best: Tensor) -> Tensor:
    index = best[(None, ..., *(None,) * (stacked.ndim - 1 - best.ndim))]
    return stacked.gather(0, index.expand(1, *stacked.shape[1:]))[0]
