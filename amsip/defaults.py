"""The kernel and the map used when the user names none, chosen by measurement: docs/default.md."""

from dataclasses import replace
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from amsip.kernels import Kernel, Octaves, Polynomial, Whitened
from amsip.maps.descent import Descent
from amsip.maps.strays import recall_strays
from amsip.placement import inside
from amsip.pretrained import load_map
from amsip.references.base import Embedding, Reference
from amsip.references.thinning import thinned
from amsip.wild import calm_chart

LENGTH = 1.4
SMOOTHNESS = 1.0
FINER = 4
MOMENTS = 10.0
STEPS = 8
FURTHER_STEPS = 16
LARGEST_MOVE = 0.5
NETWORK_ATOMS = 2000


def default_kernel(reference: Reference) -> Whitened:
    """Octaves with the shares of a Matern kernel plus a degree-2 polynomial, in coordinates whitened by the reference.

    Where a few wild draws make the moments (`amsip.wild`), the others set the scale and the polynomial is switched
    off: a rule that had their means and covariances exactly would have little else.

    Example:
        >>> from amsip import Samples
        >>> default_kernel(Samples(torch.randn(100, 4))).kernel.terms[1][0]
        10.0
    """
    chart, wild = calm_chart(reference)
    return Whitened(whitened_kernel(reference.dim, wild), chart)


def whitened_kernel(dim: int, wild: Bool[Tensor, "*q"] | None = None) -> Kernel:
    """The default kernel in whitened coordinates, and in which queries it does without the polynomial."""
    radial = Octaves.matern(LENGTH * dim**0.5, SMOOTHNESS, finer=FINER)
    if wild is None or not bool(wild.any()):
        return radial + MOMENTS * Polynomial(degree=2, scale=float(dim))
    return radial + MOMENTS * Polynomial(degree=2, scale=torch.where(wild, torch.inf, float(dim)))


def universal_map(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
    """The shipped network, which needs no training for a new posterior, and a few descent steps after it.

    The network brings random seeds into the basin in one pass; each of the fixed number of steps costs one more
    reading of the embedding. A posterior unlike those the network was trained on (`amsip.placement`) gets
    `FURTHER_STEPS` more. See `universal_network` for the pass alone.

    Arguments:
        nodes: The seeds.
        embedding: The reference, under any kernel that has a gradient.

    Example:
        >>> from amsip import Samples, SquaredExponential, mmd2, optimal_weights
        >>> draws = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> embedding = Samples(draws).embed(SquaredExponential(1.0))
        >>> starts = draws[:8], universal_map(draws[:8], embedding)
        >>> before, after = (mmd2(z, optimal_weights(z, embedding), embedding) for z in starts)
        >>> bool(after < 0.1 * before)
        True
    """
    nodes = usual_steps(nodes, embedding)
    outside = ~inside(nodes, thinned(embedding, NETWORK_ATOMS))
    if not bool(outside.any()):
        return nodes
    return torch.where(outside[..., None, None], further_descent(nodes, embedding), nodes)


def usual_steps(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
    """The network and the fixed number of descent steps, as every posterior gets them.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> usual_steps(draws[:8], Samples(draws).embed(SquaredExponential(1.0))).shape
        torch.Size([8, 2])
    """
    return universal_descent(universal_network(nodes, embedding), embedding)


def universal_network(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
    """The shipped network alone: one forward pass, which reads a few thousand atoms of a larger reference.

    Nodes that it sends out of the posterior's reach come back (`recall_strays`).

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> universal_network(draws[:8], Samples(draws).embed(SquaredExponential(1.0))).shape
        torch.Size([8, 2])
    """
    with torch.no_grad():
        moved = shipped_network(nodes.dtype)(nodes, thinned(embedding, NETWORK_ATOMS))
    return recall_strays(moved, nodes, embedding)


universal_descent = Descent(steps=STEPS, newton=False, largest_move=LARGEST_MOVE)
further_descent = replace(universal_descent, steps=FURTHER_STEPS)


@cache
def shipped_network(dtype: torch.dtype) -> nn.Module:
    """The weights as they were trained, read from disk once for each precision; strays stay where it sends them.

    Example:
        >>> next(shipped_network(torch.float64).parameters()).dtype
        torch.float64
    """
    return load_map("universal").to(dtype)
