"""Posteriors of the training family that no training has seen, and what a map makes of them."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.defaults import universal_descent, whitened_kernel
from amsip.kernels import Kernel
from amsip.maps.base import NodeMap
from amsip.maps.descent import DescentStep
from amsip.maps.strays import recall_strays
from amsip.references.base import Embedding, Reference
from amsip.seeds import draw_seeds
from amsip.training.universal import random_mixture, random_pool, usual_kernel

# far from every seed that training starts from, so that no stream is met again
FIRST_SEED = 700_000_000
KINDS: dict[str, Callable[[int, int, torch.Generator], Reference]] = {"mixtures": random_mixture, "pools": random_pool}
KERNELS: dict[str, Callable[[int], Kernel]] = {"usual": usual_kernel, "default": whitened_kernel}


@dataclass(frozen=True)
class HeldOut:
    """Which posteriors: so many batches of each kind for every dimension and budget.

    Arguments:
        dims: Dimensions.
        nodes: Budgets.
        batches: Batches of each kind; a batch shares its warps, its number of components, its base noise.
        queries: Posteriors a batch.

    Example:
        >>> len(list(HeldOut((2,), (8,), batches=1, queries=3).problems()))
        4
    """

    dims: tuple[int, ...] = (2, 5, 10, 24)
    nodes: tuple[int, ...] = (8, 32, 64)
    batches: int = 2
    queries: int = 4

    def problems(self) -> Iterator["Problem"]:
        """Each batch under each kernel, in a fixed order: what depends on the place alone, not on what came before."""
        for dim in self.dims:
            for m in self.nodes:
                for batch in range(self.batches):
                    for kind in KINDS:
                        yield from _batch(dim, m, kind, batch, self.queries)


@dataclass(frozen=True, eq=False)
class Problem:
    """Seeds and an embedding, with the words that the tables group by.

    Arguments:
        place: Dimension, budget, kind of posterior, number of the batch.
        kernel: The name of the kernel.
        seeds: Where the nodes start.
        embedding: What they are to integrate.
    """

    place: tuple[int, int, str, int]
    kernel: str
    seeds: Float[Tensor, "q m d"]
    embedding: Embedding

    def scores(self, node_map: NodeMap, steps: Sequence[int]) -> dict[str, list[float]]:
        """The squared discrepancy of every query after the map and so many steps of descent, weights optimal.

        Descent goes on from where a smaller number of steps would have ended, so one run says them all.
        """
        with torch.no_grad():
            moved = recall_strays(node_map(self.seeds, self.embedding), self.seeds, self.embedding)
        trace: list[DescentStep] = []
        dataclasses.replace(universal_descent, steps=max(steps), callback=trace.append)(moved, self.embedding)
        # a descent whose queries all rest ends early: later steps would change nothing
        losses = {step: trace[min(step, len(trace) - 1)].loss for step in steps}
        return {str(step): (loss + self.embedding.energy).tolist() for step, loss in losses.items()}


@lru_cache(maxsize=512)
def _batch(dim: int, m: int, kind: str, batch: int, queries: int) -> tuple[Problem, ...]:
    place = ((dim * 1000 + m) * len(KINDS) + list(KINDS).index(kind)) * 100 + batch
    generator = torch.Generator().manual_seed(FIRST_SEED + place)
    reference = KINDS[kind](queries, dim, generator)
    seeds = draw_seeds(reference, m, generator=generator)
    return tuple(
        Problem((dim, m, kind, batch), name, seeds, reference.embed(kernel(dim))) for name, kernel in KERNELS.items()
    )
