"""What moves nodes."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from amsip.references.base import Embedding


@runtime_checkable
class NodeMap(Protocol):
    """Takes nodes to better nodes, reading the posterior only through its embedding.

    The seam of the package: a map cannot know what kind of reference is behind the embedding.
    """

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The moved nodes, in the embedding's coordinates."""
        ...
