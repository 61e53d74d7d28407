"""The method, end to end."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.defaults import default_kernel
from amsip.guard import guarded
from amsip.kernels import Kernel, Whitened
from amsip.maps.base import NodeMap
from amsip.references.base import Reference
from amsip.references.samples import Samples
from amsip.rules import Rule
from amsip.seeds import draw_seeds
from amsip.weights import optimal_weights, uniform_weights


def quadrature(
    source: Reference | Float[Tensor, "*q n d"],
    m: int,
    *,
    sample_weights: Float[Tensor, "*q n"] | None = None,
    kernel: Kernel | None = None,
    node_map: NodeMap | None = None,
    generator: torch.Generator | None = None,
    total: float = 1.0,
) -> Rule:
    reference = as_reference(source, sample_weights)
    kernel = default_kernel(reference) if kernel is None else kernel
    seeds = draw_seeds(reference, m, generator=generator)
    return emit(reference, seeds, kernel, node_map, total=total)


def emit(
    reference: Reference,
    seeds: Float[Tensor, "*q m d"],
    kernel: Kernel,
    node_map: NodeMap | None,
    *,
    total: float = 1.0,
) -> Rule:
    """One emission from given seeds, worked out in the kernel's own coordinates."""
    if isinstance(kernel, Whitened):
        chart = kernel.whitening
        rule = emit(reference.whiten(chart), chart.forward(seeds), kernel.kernel, node_map, total=total)
        return dataclasses.replace(rule, nodes=chart.inverse(rule.nodes), embedding=reference.embed(kernel))
    embedding = reference.embed(kernel)
    with torch.no_grad():
        candidates = [(seeds, uniform_weights(seeds) * total), (seeds, optimal_weights(seeds, embedding, total=total))]
        if node_map is not None:
            nodes = node_map(seeds, embedding)
            candidates.append((nodes, optimal_weights(nodes, embedding, total=total)))
        return guarded(candidates, embedding)


def as_reference(source: Reference | Tensor, sample_weights: Tensor | None = None) -> Reference:
    """A reference as it is; anything else is taken as draws."""
    if isinstance(source, Reference):
        return source
    return Samples(source, sample_weights)
