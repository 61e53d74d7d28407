"""Maps one after the other."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from amsip.maps.base import NodeMap
from amsip.references.base import Embedding


@dataclass(frozen=True, eq=False)
class Chain:
    """Each map starts where the one before it ended.

    Arguments:
        maps: The maps, in order.

    Example:
        >>> import torch
        >>> from amsip import Samples, SquaredExponential
        >>> from amsip.maps.meanshift import MeanShift
        >>> embedding = Samples(torch.zeros(1, 1)).embed(SquaredExponential(1.0))
        >>> Chain((MeanShift(steps=1), MeanShift(steps=1)))(torch.ones(1, 1), embedding).shape
        torch.Size([1, 1])
    """

    maps: tuple[NodeMap, ...]

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The nodes after the last map."""
        for node_map in self.maps:
            nodes = node_map(nodes, embedding)
        return nodes
