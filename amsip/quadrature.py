"""The method, end to end."""

import dataclasses
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.defaults import default_kernel, universal_map
from amsip.guard import finished, finite_or_seeds, guarded, weighed
from amsip.kernels import Kernel, Whitened
from amsip.maps.base import NodeMap
from amsip.maps.strays import recall_strays
from amsip.references.base import Reference
from amsip.references.conditional import Conditional
from amsip.references.samples import Samples
from amsip.rules import Rule
from amsip.seeds import draw_seeds

SLACK = 2.0


def quadrature(
    source: Reference | _checks.ArrayLike,
    m: int,
    *,
    sample_weights: _checks.ArrayLike | None = None,
    kernel: Kernel | None = None,
    node_map: NodeMap | None = universal_map,
    generator: torch.Generator | None = None,
    total: float = 1.0,
) -> Rule:
    r"""Turn a posterior into a rule of m weighted nodes, never worse than the reweighted draws it starts from.

    $$\mathbb E_\rho f \approx \sum_{j=1}^m w_j f(z_j)$$

    Algorithm 1 of the paper, with a guard: per query the emission of least discrepancy is kept.

    Arguments:
        source: Draws of the posterior, `(n, d)` or one set per query `(q, n, d)`; or any reference.
        m: The number of nodes.
        sample_weights: One non-negative weight per draw.
        kernel: What the rule should integrate well; see `amsip.defaults`.
        node_map: What moves the nodes; None leaves them where they are and solves for the weights alone.
        generator: Which draws the nodes start from.
        total: What the weights sum to.

    Returns:
        Nodes and signed weights, with a record of what the guard kept.

    Raises:
        ValueError: A draw is not finite, or m is out of range.

    Example:
        >>> draws = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> rule = quadrature(draws, 32, generator=torch.Generator().manual_seed(1))
        >>> bool((rule.mean() - draws.mean(0)).abs().max() < 1e-9)
        True
    """
    reference = as_reference(source, sample_weights)
    kernel = default_kernel(reference) if kernel is None else kernel
    seeds = draw_seeds(reference, m, generator=generator)
    return emit(reference, seeds, kernel, node_map, total=total)


def resolution_dial(
    source: Reference | _checks.ArrayLike,
    budgets: Sequence[int],
    *,
    sample_weights: _checks.ArrayLike | None = None,
    kernel: Kernel | None = None,
    node_map: NodeMap | None = universal_map,
    generator: torch.Generator | None = None,
) -> dict[int, Rule]:
    """Rules at several budgets in one call, from nested seeds: what `quadrature` gives, as a curve of cost.

    Arguments:
        source: As for `quadrature`.
        budgets: The numbers of nodes.
        sample_weights: As for `quadrature`.
        kernel: As for `quadrature`.
        node_map: As for `quadrature`.
        generator: Draws the largest set of seeds; each smaller one is its beginning.

    Returns:
        A rule for each budget.

    Example:
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> [rule.nodes.shape[0] for rule in resolution_dial(draws, [4, 8, 16]).values()]
        [4, 8, 16]
    """
    reference = as_reference(source, sample_weights)
    kernel = default_kernel(reference) if kernel is None else kernel
    counts = _checks.budgets(budgets)
    seeds = draw_seeds(reference, max(counts), generator=generator)
    return {m: emit(reference, seeds[..., :m, :], kernel, node_map) for m in counts}


def emit(
    reference: Reference,
    seeds: Float[Tensor, "*q m d"],
    kernel: Kernel,
    node_map: NodeMap | None,
    *,
    total: float = 1.0,
) -> Rule:
    """One emission from given seeds, worked out in the kernel's own coordinates."""
    _checks.instance("kernel", kernel, Kernel, "amsip.SquaredExponential(0.5)")
    if node_map is not None:
        _checks.a_function("node_map", node_map, 'amsip.load_map("universal")')
    if isinstance(kernel, Whitened):
        chart = kernel.whitening
        rule = emit(reference.whiten(chart), chart.forward(seeds), kernel.kernel, node_map, total=total)
        return dataclasses.replace(rule, nodes=chart.inverse(rule.nodes).detach(), embedding=reference.embed(kernel))
    embedding = reference.embed(kernel)
    with torch.no_grad():
        candidates = weighed(seeds, embedding, total=total)
        promise = candidates[1].loss
        if node_map is None:
            return guarded(candidates, embedding)
        moved = node_map(seeds, embedding)
        _checks.moved_nodes(moved, seeds)
        # whatever the map: also a long descent now and then lets a node go that next to no weight holds
        nodes = recall_strays(finite_or_seeds(moved, seeds), seeds, embedding, slack=SLACK)
        rule = guarded((*candidates, weighed(nodes, embedding, total=total)[1]), embedding)
        return finished(rule, promise, embedding) if total == 1.0 else rule


def as_reference(source: Reference | _checks.ArrayLike, sample_weights: _checks.ArrayLike | None = None) -> Reference:
    """A reference as it is; anything else is taken as draws."""
    _checks.conditioned(source, Conditional)
    if isinstance(source, Reference):
        _checks.no_sample_weights(sample_weights)
    reference = source if isinstance(source, Reference) else Samples(source, sample_weights)
    if isinstance(reference, Samples):
        _checks.spread_in_range("samples", reference.exact_moments[1], reference.atoms)
    return reference
