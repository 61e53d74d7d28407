"""Nodes that a map sent where the posterior is not."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.references.base import Embedding
from amsip.whitening import Whitening

BEYOND, MARGIN = 1.25, 2.0


def recall_strays(
    nodes: Float[Tensor, "*q m d"], seeds: Float[Tensor, "*q m d"], embedding: Embedding, *, slack: float = 1.0
) -> Float[Tensor, "*q m d"]:
    r"""The nodes, but those further out than the posterior reaches back at their seeds.

    A lone node far out can carry a covariance with hardly any weight. No kernel minds it, no descent finds the way
    back, and an integrand that grows is spoiled by it. Whitened by the moments of the reference, a node may be as far
    from the centre as 1.25 times the furthest seed of its query, or $\sqrt d + 2$.

    Arguments:
        nodes: What the map made of the seeds.
        seeds: Draws, node by node.
        embedding: The reference.
        slack: Multiplies both bounds.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(500, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> seeds, embedding = torch.zeros(2, 1), Samples(draws).embed(SquaredExponential(1.0))
        >>> recall_strays(torch.tensor([[1.0], [9.0]]), seeds, embedding).flatten()
        tensor([1., 0.])
    """
    chart = Whitening.of_moments(*(moment.to(nodes) for moment in embedding.moments))
    out, usual = (chart.forward(z).norm(dim=-1) for z in (nodes, seeds))
    reach = (BEYOND * usual.amax(-1, keepdim=True)).clamp_min(nodes.shape[-1] ** 0.5 + MARGIN)
    return torch.where((out > slack * reach)[..., None], seeds, nodes)
