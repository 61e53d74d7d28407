"""The map of the paper for posteriors whose shape moves with the observation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip import _checks
from amsip.maps.layers import Attention, Modulation, SetBlock, SetContext, seeded, zero_linear
from amsip.references.base import Embedding

CHANNELS = 32
VECTOR_TOKENS = 8


class ConditionedMap(nn.Module):
    r"""The observation-conditioned twin: in each block the nodes also attend to tokens of the observation.

    $$z_j = z_j^0 + 0.5\, f_\theta(z^0_{1:M}, y)_j$$

    Appendix C.1 of the paper. Images become tokens by three strided convolutions, vectors by two linear layers.
    The cross-attention starts at zero, so before training the observation is ignored and the seeds are returned.

    Arguments:
        dim: The number of coordinates.
        observation: The shape of one observation, `(channels, height, width)` or `(length,)`.
        width: The hidden width.
        blocks: The number of blocks.
        heads: The number of attention heads.
        reach: What the emitted displacement is multiplied by.
        generator: Draws the initial parameters.

    Example:
        >>> net = ConditionedMap(32, (1, 64, 64))
        >>> sum(p.numel() for p in net.parameters())
        1044032
        >>> seeds = torch.randn(3, 8, 32, dtype=torch.float64)
        >>> torch.equal(net.given(torch.randn(3, 1, 64, 64))(seeds), seeds)
        True
    """

    def __init__(
        self,
        dim: int,
        observation: Sequence[int],
        width: int = 128,
        blocks: int = 4,
        heads: int = 8,
        *,
        reach: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _checks.whole_heads(width, heads)
        self.settings: dict[str, Any] = {"dim": dim, "observation": list(observation), "reach": reach}
        self.settings |= {"width": width, "blocks": blocks, "heads": heads}
        self.dim, self.observation, self.reach = dim, tuple(observation), reach
        context = width // 2
        with seeded(generator):
            self.encode = _encoder(self.observation)
            self.embed = nn.Linear(dim, width)
            self.context = SetContext(context)
            self.blocks = nn.ModuleList(_ConditionedBlock(width, heads, context) for _ in range(blocks))
            self.norm = nn.LayerNorm(width)
            self.head = zero_linear(width, dim)
        self.double()

    def given(self, observation: Tensor) -> "GivenMap":
        """The map of one observation, or of a batch of them, one per query."""
        _checks.ends_with("observation", observation, self.observation)
        return GivenMap(self, observation)

    def forward(self, nodes: Float[Tensor, "*q m d"], observation: Tensor) -> Float[Tensor, "*q m d"]:
        """The seeds, displaced in view of the observation; maps call it through `given`."""
        _checks.same_dim("nodes", nodes, self.dim)
        dtype, queries = self.head.weight.dtype, nodes.shape[:-2]
        seeds = nodes.reshape(-1, *nodes.shape[-2:]).to(dtype)
        batch = observation.shape[: observation.ndim - len(self.observation)]
        tokens = self.encode(observation.reshape(-1, *self.observation).to(dtype)).mT
        shape = tokens.shape[-2:]
        tokens = tokens.reshape(*batch, *shape).expand(*queries, *shape).reshape(-1, *shape)
        h, context = self.embed(seeds), self.context(seeds)
        for block in self.blocks:
            h = block(h, context, tokens)
        return nodes + (self.reach * self.head(self.norm(h))).to(nodes.dtype).reshape(nodes.shape)


@dataclass(frozen=True, eq=False)
class GivenMap:
    """A conditioned map with its observation in place: a NodeMap.

    Arguments:
        net: The conditioned map.
        observation: What was observed, one for all queries or one per query.

    Example:
        >>> given = ConditionedMap(2, (5,), width=16, heads=2).given(torch.zeros(5))
        >>> given(torch.zeros(4, 2)).shape
        torch.Size([4, 2])
    """

    net: ConditionedMap
    observation: Tensor

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding | None = None) -> Float[Tensor, "*q m d"]:
        """The seeds, displaced in view of the observation; the embedding is not read."""
        return self.net(nodes, self.observation)


class _ConditionedBlock(nn.Module):
    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.own = SetBlock(width, heads, context)
        self.norm, self.tokens = nn.LayerNorm(width), nn.Linear(CHANNELS, width)
        self.cross, self.out = Attention(width, heads), zero_linear(width, width)
        self.modulation = Modulation(context, width)

    def forward(self, h: Tensor, context: Tensor, tokens: Tensor) -> Tensor:
        h = self.own(h, context)
        return h + self.modulation(self.out(self.cross(self.norm(h), self.tokens(tokens))), context)


def _encoder(observation: tuple[int, ...]) -> nn.Sequential:
    """From an observation to (channels, tokens)."""
    _checks.one_of("the number of axes of `observation`", len(observation), (1, 3))
    if len(observation) == 1:
        hidden = 4 * CHANNELS
        layers: list[nn.Module] = [nn.Linear(observation[0], hidden), nn.GELU()]
        return nn.Sequential(*layers, nn.Linear(hidden, CHANNELS * VECTOR_TOKENS), nn.Unflatten(-1, (CHANNELS, -1)))
    layers = []
    for channels in (observation[0], CHANNELS, CHANNELS):
        layers += [nn.Conv2d(channels, CHANNELS, 3, stride=2, padding=1), nn.GELU()]
    return nn.Sequential(*layers, nn.Conv2d(CHANNELS, CHANNELS, 1), nn.Flatten(-2))
