"""Whether a posterior lies inside what the shipped map was trained for."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip.kernels import Whitened
from amsip.references.base import Embedding
from amsip.references.embeddings import WhitenedEmbedding
from amsip.rules import Rule

TABLE = Path(__file__).parent / "data" / "placement.json"
USUAL = 2.0
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a rule stands among the rules of the random posteriors that the shipped map was trained on.

    Arguments:
        inside: Per query, whether the posterior looks like those: its distance is below 1.
        distance: The Mahalanobis distance of its features, in units of what 99% of the training family stay below.
        achieved: The squared discrepancy, as a ratio to that of as many plain draws.
        usual: The same ratio as the training family has it at this size, dimension and overlap.
        unusual: Whether the achieved ratio is worse than nearly all of the training family's.
    """

    inside: Bool[Tensor, "*q"]
    distance: Float[Tensor, "*q"]
    achieved: Float[Tensor, "*q"]
    usual: Float[Tensor, "*q"]
    unusual: Bool[Tensor, "*q"]


def place(rule: Rule) -> Placement:
    r"""Says per query whether a rule's posterior lies inside what the shipped map was trained for.

    The achieved ratio is $\mathrm{MMD}^2 / \tfrac1M (\bar k - c)$, whose denominator is what plain draws have on
    average. For n draws the self-affinity c costs n^2 kernel values, once.

    Arguments:
        rule: A rule that carries its reference.

    Raises:
        ValueError: It does not.

    Example:
        >>> from amsip import quadrature
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> place(quadrature(draws, 16, generator=torch.Generator().manual_seed(1))).inside
        tensor(True)
    """
    if rule.embedding is None:
        raise ValueError("This rule does not carry its reference: make it with `quadrature`.")
    found = features(*in_chart(rule.nodes, rule.embedding))
    achieved = achieved_ratio(rule)
    table = _table()
    usual = (found @ _vector(table["usual"])).exp()
    distance = _distance(found)
    unusual = achieved > usual * torch.as_tensor(USUAL * table["usual_spread"], dtype=torch.float64).exp()
    return Placement(distance < 1.0, distance, achieved, usual, unusual)


def inside(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Bool[Tensor, "*q"]:
    """The cheap half of `place`: one reading of the embedding at the nodes, in the coordinates the map works in.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> tiny = Samples(draws).embed(SquaredExponential(1e-6))
        >>> inside(draws[:8], tiny)
        tensor(False)
    """
    return _distance(features(nodes, embedding)) < 1.0


def features(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q f"]:
    """What a placement looks at, all invariant to rotation, translation and scale.

    A constant, log M, log d and their product; the kernel's length against the posterior's spread; how much of the
    kernel's height its mean reaches at the nodes, and how unevenly; how elongated the posterior is; how far the
    furthest node stands out.
    """
    z = nodes.detach().to(torch.float64)
    m, d = z.shape[-2:]
    gram, shadow = embedding.kernel.gram_and_shadow(z)
    height, stiffness = (k.diagonal(dim1=-2, dim2=-1).mean(-1) for k in (gram, shadow))
    level = (embedding.mean(z) / height[..., None]).clamp_min(TINY).log().clamp_min(-50.0)
    centre, cov = (moment.to(torch.float64) for moment in embedding.moments)
    variances = torch.linalg.eigvalsh(cov).clamp_min(0.0)
    spread = variances.mean(-1).clamp_min(TINY)
    reach = (z - centre[..., None, :]).square().sum(-1).amax(-1) / (d * spread)
    ones = torch.ones_like(level[..., 0])
    size, dim = torch.tensor(float(m)).log(), torch.tensor(float(d)).log()
    columns = [ones, ones * size, ones * dim, ones * size * dim]
    columns += [(height / (stiffness * spread)).clamp_min(TINY).log(), level.mean(-1), level.std(-1, correction=0)]
    columns += [(variances[..., -1] / spread).clamp_min(TINY).log(), reach.clamp_min(1e-6).log()]
    return torch.stack(torch.broadcast_tensors(*columns), -1)


def achieved_ratio(rule: Rule) -> Float[Tensor, "*q"]:
    """The squared discrepancy of a rule over what as many plain draws have on average."""
    assert rule.embedding is not None
    height = rule.embedding.kernel.diagonal(rule.nodes.to(torch.float64)).mean(-1)
    floor = (height - rule.embedding.energy).clamp_min(TINY) / len(rule)
    return rule.mmd2.to(torch.float64).clamp_min(0.0) / floor


def in_chart(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> tuple[Float[Tensor, "*q m d"], Embedding]:
    """Nodes and embedding in the coordinates of a whitened kernel, in which maps work; others as they are."""
    if isinstance(embedding, WhitenedEmbedding) and isinstance(embedding.kernel, Whitened):
        return embedding.kernel.whitening.forward(nodes), embedding.inner
    return nodes, embedding


def _distance(found: Tensor) -> Tensor:
    table = _table()
    centred = (found[..., 1:] - _vector(table["centre"])) @ _vector(table["whitener"]).mT
    return centred.square().sum(-1).sqrt() / table["reach"]


def _vector(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table
