"""The map of the paper: attention over the seeds, one displacement a node."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip import _checks
from amsip.maps.layers import SetBlock, SetContext, seeded, zero_linear
from amsip.references.base import Embedding


class AttentionMap(nn.Module):
    r"""The paper's set network: reads the seeds alone, so it is trained for one target.

    $$z_j = z_j^0 + 0.5\, f_\theta(z^0_{1:M})_j$$

    Appendix C.1 of the paper. Permutation-equivariant, any number of nodes; untrained it returns its seeds.

    Arguments:
        dim: The number of coordinates.
        width: The hidden width, 64 in the paper (96 for its Darcy flow).
        blocks: The number of set blocks.
        heads: The number of attention heads.
        context: The width of the embedding of [log M, log spread].
        reach: What the emitted displacement is multiplied by.
        generator: Draws the initial parameters.

    Example:
        >>> net = AttentionMap(2)
        >>> sum(p.numel() for p in net.parameters())
        114690
        >>> seeds = torch.randn(3, 8, 2, dtype=torch.float64)
        >>> torch.equal(net(seeds), seeds)
        True
    """

    def __init__(
        self,
        dim: int,
        width: int = 64,
        blocks: int = 3,
        heads: int = 4,
        *,
        context: int = 32,
        reach: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _checks.whole_heads(width, heads)
        self.settings: dict[str, Any] = {"dim": dim, "width": width, "blocks": blocks, "heads": heads}
        self.settings |= {"context": context, "reach": reach}
        self.dim, self.reach = dim, reach
        with seeded(generator):
            self.embed = nn.Linear(dim, width)
            self.context = SetContext(context)
            self.blocks = nn.ModuleList(SetBlock(width, heads, context) for _ in range(blocks))
            self.norm = nn.LayerNorm(width)
            self.head = zero_linear(width, dim)
        self.double()

    def forward(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding | None = None) -> Float[Tensor, "*q m d"]:
        """The seeds, displaced; the embedding is not read.

        Computed in the precision of the parameters, returned in that of the seeds.
        """
        _checks.same_dim("nodes", nodes, self.dim)
        seeds = nodes.reshape(-1, *nodes.shape[-2:]).to(self.head.weight.dtype)
        h, context = self.embed(seeds), self.context(seeds)
        for block in self.blocks:
            h = block(h, context)
        return nodes + (self.reach * self.head(self.norm(h))).to(nodes.dtype).reshape(nodes.shape)
