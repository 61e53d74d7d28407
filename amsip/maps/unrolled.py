"""The learned mean shift: one network for every posterior, dimension and budget."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip.discrepancy import loss
from amsip.references.base import Embedding
from amsip.weights import uniform_weights, unit_sum_weights

TINY = 1e-30
WEIGHT_FLOOR = 0.1
DAMPINGS = (1e-1, 1e-3)
# witness gradients, which vanish where the discrepancy is stationary; then vectors that do not
VANISHING = 2 + len(DAMPINGS)
VECTORS = VANISHING + 4
# how much of a later layer's gradient an earlier layer feels
FORESIGHT = 0.7
PAIRS = VECTORS * (VECTORS - 1) // 2
SCALARS = VECTORS + PAIRS + 11


@dataclass(frozen=True, eq=False)
class Reading:
    """What a layer knows of the nodes: invariant scalars, equivariant vectors, and the kernel between nodes.

    The urgency is the typical length of the Newton-like step: what is left to do. Vectors that do not vanish at a
    stationary set of nodes come multiplied by it, so that a converged set stays where it is.
    """

    scalars: Float[Tensor, "*q m s"]
    vectors: Float[Tensor, "*q m v d"]
    affinities: Float[Tensor, "*q 3 m m"]
    urgency: Float[Tensor, "*q 1 1 1"]

    def to(self, dtype: torch.dtype) -> "Reading":
        """The same in another precision."""
        parts = (self.scalars, self.vectors, self.affinities, self.urgency)
        return Reading(*(part.to(dtype) for part in parts))


def read(
    nodes: Float[Tensor, "*q m d"],
    previous: Float[Tensor, "*q m d"],
    embedding: Embedding,
    unit: Float[Tensor, "*#q 1 1"],
) -> Reading:
    """The state of the nodes, from the embedding, the Gram and the optimal weights alone.

    Lengths are in multiples of `unit`; `previous` is the last displacement.
    """
    m, d = nodes.shape[-2:]
    gram, shadow = embedding.kernel.gram_and_shadow(nodes)
    mean, mean_grad = embedding.mean_and_grad(nodes)
    weights = unit_sum_weights(gram, mean)
    height = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None]
    stiffness = shadow.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None]
    gap_grad = mean_grad - embedding.kernel.weighted_grad(nodes, nodes, weights)

    downhill = _downhill(gram, shadow, weights, gap_grad)
    others = [*_surroundings(nodes, embedding, gram, shadow, mean, mean_grad), previous]
    vectors = torch.stack([*downhill, *others], -2) / unit[..., None]
    squared = vectors.square().mean(-1)
    vectors = vectors / (1.0 + squared).sqrt()[..., None]
    urgency = vectors[..., VANISHING - len(DAMPINGS), :].square().mean((-2, -1)).sqrt()[..., None, None, None]

    scaled_weights = m * weights
    gain = loss(gram, mean, uniform_weights(nodes)) - loss(gram, mean, weights)
    level = mean.mean(-1, keepdim=True)
    per_node = [
        scaled_weights / (1.0 + scaled_weights.square()).sqrt(),
        torch.log(mean.clamp_min(TINY) / level.clamp_min(TINY)).clamp(-20.0, 20.0) / 4.0,
        torch.log(gram.abs().sum(-1) / height),
        torch.log(shadow.abs().sum(-1) / stiffness),
        _signed_log(m * (mean - (gram @ weights[..., None])[..., 0]) / height),
        torch.log1p(gap_grad.square().sum(-1) / (height * stiffness)),
    ]
    off_diagonal = (gram.sum((-2, -1)) / height[..., 0] - m) / max(m * (m - 1), 1)
    per_set = [
        torch.full_like(off_diagonal, math.log(m)),
        torch.full_like(off_diagonal, math.log(d)),
        torch.log((height / stiffness)[..., 0] / unit[..., 0, 0].square()) / 4.0,
        off_diagonal,
        torch.log(gain.clamp_min(0.0) * m / height[..., 0] + 1e-12) / 8.0,
    ]
    cosines = _cosines(vectors)
    scalars = torch.cat(
        [
            torch.log1p(squared) / 2.0,
            cosines,
            torch.stack(per_node, -1),
            torch.stack(per_set, -1)[..., None, :].expand(*nodes.shape[:-1], len(per_set)),
        ],
        -1,
    )
    identity = torch.eye(m, dtype=nodes.dtype).expand_as(gram)
    affinities = torch.stack([gram / height[..., None], shadow / stiffness[..., None], identity], -3)
    tempered = torch.cat([vectors[..., :VANISHING, :], vectors[..., VANISHING:, :] * urgency], -2)
    return Reading(scalars, tempered, affinities, urgency)


def _downhill(gram: Tensor, shadow: Tensor, weights: Tensor, gap_grad: Tensor) -> list[Tensor]:
    """The gradient of the witness, alone, per weight, and preconditioned by the shadow between nodes."""
    m = weights.shape[-1]
    stiffness = shadow.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    share = torch.where(weights < 0, -1.0, 1.0).to(weights) * weights.abs().clamp_min(WEIGHT_FLOOR / m)
    vectors = [m * gap_grad / stiffness, gap_grad / (stiffness * share[..., None])]
    for damping in DAMPINGS:
        factor = torch.linalg.cholesky_ex(shadow + damping * stiffness * torch.eye(m, dtype=gram.dtype))[0]
        vectors.append(torch.cholesky_solve(gap_grad, factor) / share[..., None])
    return vectors


def _surroundings(
    nodes: Tensor, embedding: Embedding, gram: Tensor, shadow: Tensor, mean: Tensor, mean_grad: Tensor
) -> list[Tensor]:
    """The mean shift, the way from the neighbours, the way from the centre."""
    identity = torch.eye(nodes.shape[-2], dtype=nodes.dtype)
    others_k = (gram * (1 - identity)).abs().sum(-1) + 0.05 * gram.diagonal(dim1=-2, dim2=-1)
    others_s = (shadow * (1 - identity)).abs().sum(-1) + 0.05 * shadow.diagonal(dim1=-2, dim2=-1)
    reach = others_k / others_s
    mean_shift = (reach / mean.abs().clamp_min(TINY))[..., None] * mean_grad
    neighbours = shadow.abs() / shadow.abs().sum(-1, keepdim=True)
    return [mean_shift, nodes - neighbours @ nodes, nodes - embedding.moments[0][..., None, :]]


def _cosines(vectors: Tensor) -> Tensor:
    unit = vectors / vectors.square().sum(-1, keepdim=True).clamp_min(1e-24).sqrt()
    rows, cols = torch.triu_indices(VECTORS, VECTORS, offset=1)
    return (unit @ unit.mT)[..., rows, cols]


def _signed_log(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.log1p(100.0 * x.abs()) / 4.0


class UnrolledLayer(nn.Module):
    """One learned mean-shift step: scalars choose, vectors move."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.embed_scalars = nn.Linear(SCALARS, width)
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.affinity_bias = nn.Parameter(torch.zeros(heads, 3))
        self.mix = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm_head = nn.LayerNorm(width)
        self.head = nn.Linear(width, VECTORS + heads)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, state: Float[Tensor, "*q m w"], nodes: Float[Tensor, "*q m d"], reading: Reading
    ) -> tuple[Float[Tensor, "*q m w"], Float[Tensor, "*q m d"]]:
        """The new state and the displacement, in units."""
        state = state + self.embed_scalars(reading.scalars)
        q, k, v = self._split(self.query_key_value(self.norm_attention(state)))
        bias = torch.einsum("hc,...cij->...hij", self.affinity_bias, reading.affinities)
        attention = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, -1)
        state = state + self.mix((attention @ v).transpose(-3, -2).flatten(-2))
        state = state + self.mlp(self.norm_mlp(state))
        coefficients = self.head(self.norm_head(state))
        pulls = (attention @ nodes[..., None, :, :] - nodes[..., None, :, :]).transpose(-3, -2)
        directions = torch.cat([reading.vectors, pulls * reading.urgency], -2)
        return state, (coefficients[..., None] * directions).sum(-2)

    def _split(self, packed: Tensor) -> list[Tensor]:
        parts = packed.unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-3, -2)
        return [parts[0], parts[1], parts[2]]


class UnrolledMap(nn.Module):
    """A few learned mean-shift layers that read a posterior only through its embedding at the nodes.

    Each layer sees invariant scalars (weights, crowding, witness, norms and cosines) and equivariant vectors (mean
    shift, witness gradient, Newton-like steps, repulsion), mixes the scalars by attention over nodes, and moves each
    node by a combination of the vectors. Hence permutations, rotations, translations and scale carry through, and
    neither the dimension, nor the budget, nor the target is built in. Untrained, it returns its seeds.

    Arguments:
        layers: The number of steps.
        width: Hidden channels.
        heads: Attention heads.
        shared: One layer's parameters serve every step.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> net = UnrolledMap(layers=2).double()
        >>> torch.equal(net(draws[:8], Samples(draws).embed(SquaredExponential(1.0))), draws[:8])
        True
    """

    def __init__(self, layers: int = 5, width: int = 48, heads: int = 4, shared: bool = False) -> None:
        super().__init__()
        self.settings = {"layers": layers, "width": width, "heads": heads, "shared": shared}
        self.width = width
        self.layers = nn.ModuleList(UnrolledLayer(width, heads) for _ in range(1 if shared else layers))
        self.times = layers if shared else 1

    def forward(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The moved nodes."""
        return self.path(nodes, embedding)[-1]

    def path(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "l *q m d"]:
        """The nodes after every layer.

        Gradients reach a layer through the displacements it chose, not through what later layers read: the derivative
        of a nearly singular solve says nothing that helps. They fade from layer to layer.
        """
        mean, cov = embedding.moments
        unit = cov.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(TINY).sqrt()[..., None, None]
        dtype = next(self.parameters()).dtype
        state = nodes.new_zeros(*nodes.shape[:-1], self.width, dtype=dtype)
        moved, path = torch.zeros_like(nodes), []
        for layer in list(self.layers) * self.times:
            with torch.no_grad():
                reading = read(nodes, moved, embedding, unit)
            fixed = nodes.detach()
            # the solves behind a reading need the nodes' precision, the network works in its own
            state, step = layer(state, ((fixed - mean[..., None, :]) / unit).to(dtype), reading.to(dtype))
            moved = unit * step.to(nodes)
            nodes = fixed + FORESIGHT * (nodes - fixed) + moved
            path.append(nodes)
        return torch.stack(path)
