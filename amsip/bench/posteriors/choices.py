"""The default and its alternatives, each a change of one thing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.foreign import describe
from amsip.defaults import (
    FINER,
    LENGTH,
    MOMENTS,
    NETWORK_ATOMS,
    SMOOTHNESS,
    STEPS,
    shipped_network,
    universal_descent,
    universal_map,
    universal_network,
    whitened_kernel,
)
from amsip.finishing import match_moments
from amsip.kernels import Kernel, Octaves, Polynomial, SquaredExponential
from amsip.maps.base import NodeMap
from amsip.maps.descent import Descent
from amsip.pretrained import load_card
from amsip.references.base import Embedding
from amsip.references.samples import Samples
from amsip.references.thinning import thinned
from amsip.rules import Rule
from amsip.weights import JITTER, optimal_weights, simplex_weights
from amsip.whitening import Whitening

Weigh = Callable[[Tensor, Embedding], Tensor]


@dataclass(frozen=True)
class Choice:
    """One way to make a rule.

    Arguments:
        group: What it changes.
        name: As the table prints it.
        kernel: By the dimension, in whitened coordinates.
        node_map: What moves the seeds.
        weigh: The weights at the moved nodes.
        finish: Whether the affine move that makes mean and covariance exact comes last.
    """

    group: str
    name: str
    kernel: Callable[[int], Kernel] = field(default=whitened_kernel, repr=False)
    node_map: NodeMap = field(default=universal_map, repr=False)
    weigh: Weigh = field(default=optimal_weights, repr=False)
    finish: bool = True

    @property
    def slug(self) -> str:
        """A file name."""
        kept = [c if c.isalnum() or c in ".-" else "-" for c in f"{self.group}-{self.name}"]
        return "".join(kept)

    def stamp(self, dim: int) -> dict[str, object]:
        """What a finished cell must share with this choice to be taken for it."""
        terms = [list(term) for term in describe(self.kernel(dim))]
        return {"kernel": terms, "steps": STEPS, "map": load_card("universal").sha256}

    def rule(self, reference: Samples, seeds: Float[Tensor, "*q m d"]) -> Rule:
        """Nodes and weights, in the reference's own coordinates."""
        chart = Whitening.of_moments(*reference.moments())
        with torch.no_grad():
            embedding = reference.whiten(chart).embed(self.kernel(reference.dim))
            nodes = self.node_map(chart.forward(seeds), embedding)
            weights = self.weigh(nodes, embedding)
            if self.finish:
                nodes = match_moments(nodes, weights, embedding.moments)
            return Rule(chart.inverse(nodes), weights)


def octaves(length: float, smoothness: float, moments: float, finer: int, coarser: int = 1) -> Callable[[int], Kernel]:
    """A kernel like the default one, with other constants."""

    def kernel(dim: int) -> Kernel:
        radial = Octaves.matern(length * dim**0.5, smoothness, finer=finer, coarser=coarser)
        return radial + moments * Polynomial(2, float(dim))

    return kernel


def _equal_octaves(dim: int) -> Kernel:
    return Octaves(0.25 * dim**0.5, 5) + MOMENTS * Polynomial(2, float(dim))


def _octaves_alone(dim: int) -> Kernel:
    return Octaves.matern(LENGTH * dim**0.5, SMOOTHNESS, finer=FINER)


def _linear_part(dim: int) -> Kernel:
    return _octaves_alone(dim) + MOMENTS * Polynomial(1, float(dim))


def _one_gaussian(dim: int) -> Kernel:
    return SquaredExponential(dim**0.5)


def _gaussian_and_moments(dim: int) -> Kernel:
    return _one_gaussian(dim) + MOMENTS * Polynomial(2, float(dim))


def _steps(count: int) -> Descent:
    return replace(universal_descent, steps=count)


def _network_and(count: int) -> NodeMap:
    def node_map(nodes: Tensor, embedding: Embedding) -> Tensor:
        return _steps(count)(universal_network(nodes, embedding), embedding)

    return node_map


def _with_strays(nodes: Tensor, embedding: Embedding) -> Tensor:
    return _steps(STEPS)(shipped_network(nodes.dtype)(nodes, thinned(embedding, NETWORK_ATOMS)), embedding)


def _still(nodes: Tensor, embedding: Embedding) -> Tensor:
    return nodes


def _ridge(jitter: float) -> Weigh:
    return lambda nodes, embedding: optimal_weights(nodes, embedding, jitter=jitter)


def _exact_means(nodes: Tensor, embedding: Embedding) -> Tensor:
    return optimal_weights(nodes, embedding, exact=1)


def _choices() -> Iterator[Choice]:
    yield Choice("default", "the default")
    for length, smoothness, moments, finer in (
        (1.4, 2.5, 3.0, 3),
        (1.4, 1.5, 10.0, 4),
        (1.4, 0.5, 10.0, 4),
        (1.0, 1.0, 10.0, 4),
        (2.0, 1.0, 10.0, 4),
        (1.4, 1.0, 3.0, 4),
        (1.4, 1.0, 30.0, 4),
    ):
        name = f"length {length}, smoothness {smoothness}, moments {moments:g}, {finer} finer"
        yield Choice("Octaves", name, octaves(length, smoothness, moments, finer))
    yield Choice("Other kernels", "equal octaves (.25 .5 1 2 4), moments 10", _equal_octaves)
    yield Choice("Other kernels", "octaves, linear part only", _linear_part)
    yield Choice("Other kernels", "octaves, no polynomial", _octaves_alone)
    yield Choice("Other kernels", "one Gaussian at sqrt(d), moments 10", _gaussian_and_moments)
    yield Choice("Other kernels", "one Gaussian at sqrt(d)", _one_gaussian, finish=False)
    for count in (0, 3, 16):
        yield Choice("Descent steps after the network", f"{count} steps", node_map=_network_and(count))
    yield Choice("Strays", "the network's strays stay where they are", node_map=_with_strays)
    yield Choice("Without the network", "seeds where they are", node_map=_still)
    for count in (8, 24):
        yield Choice("Without the network", f"{count} steps from the seeds", node_map=_steps(count))
    yield Choice("Finish and weights", "no finishing move", finish=False)
    yield Choice("Finish and weights", "weights on the simplex", weigh=simplex_weights)
    yield Choice("Finish and weights", "weights exact on means", weigh=_exact_means)
    for jitter in (1e-8, 1e-6, 1e-4):
        yield Choice("Ridge", f"{jitter:.0e} (default {JITTER:.0e})", weigh=_ridge(jitter))


CHOICES = tuple(_choices())
