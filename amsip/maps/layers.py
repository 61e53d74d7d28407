"""The layers that the set networks share: attention over nodes, feature-wise modulation, seeded initialisation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

SMALLEST_SPREAD = 1e-6


@contextmanager
def seeded(generator: torch.Generator | None) -> Iterator[None]:
    """Module constructors draw from `generator`; the global random state is left as it was."""
    start = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start)
        yield


class Attention(nn.Module):
    """Multi-head attention without positions: permuting the queries permutes the output."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "b m w"], y: Float[Tensor, "b t w"] | None = None) -> Float[Tensor, "b m w"]:
        if y is None:
            query, key, value = self.project(x).chunk(3, -1)
        else:
            width = x.shape[-1]
            weight, bias = self.project.weight, self.project.bias
            query = nn.functional.linear(x, weight[:width], bias[:width])
            key, value = nn.functional.linear(y, weight[width:], bias[width:]).chunk(2, -1)
        mixed = scaled_dot_product_attention(self._split(query), self._split(key), self._split(value))
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Modulation(nn.Module):
    """Feature-wise modulation (1 + gamma) x + beta, the identity before training."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.affine = zero_linear(context, 2 * width)

    def forward(self, x: Float[Tensor, "b m w"], context: Float[Tensor, "b c"]) -> Float[Tensor, "b m w"]:
        gamma, beta = self.affine(context)[:, None, :].chunk(2, -1)
        return torch.addcmul(x + beta, gamma, x)


class SetBlock(nn.Module):
    """A pre-normalised residual block: attention among the nodes, then a modulated perceptron of each node."""

    def __init__(self, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.modulation = Modulation(context, width)

    def forward(self, h: Float[Tensor, "b m w"], context: Float[Tensor, "b c"]) -> Float[Tensor, "b m w"]:
        h = h + self.attention(self.attention_norm(h))
        return h + self.modulation(self.perceptron(self.perceptron_norm(h)), context)


class SetContext(nn.Module):
    """What a set tells every block: [log M, log spread], embedded by two layers."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(2, context), nn.GELU(), nn.Linear(context, context))

    def forward(self, seeds: Float[Tensor, "b m d"]) -> Float[Tensor, "b c"]:
        spread = seeds.std(-2, correction=0).mean(-1).clamp_min(SMALLEST_SPREAD).log()
        count = torch.full_like(spread, float(seeds.shape[-2])).log()
        return self.embed(torch.stack([count, spread], -1))


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that returns zero until it is trained."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
