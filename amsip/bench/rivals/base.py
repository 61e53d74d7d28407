"""What a rival is: a way from the same draws to nodes, with weights of its own or none."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.timing import milliseconds
from amsip.kernels import Kernel


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of one call.

    Arguments:
        nodes: One set of nodes per repetition.
        weights: The rival's own weights; None where it means equal ones.
        ms: CPU milliseconds of one rule made alone, where the rival knows better than a clock around the call.
    """

    nodes: Float[Tensor, "r m d"]
    weights: Float[Tensor, "r m"] | None = None
    ms: float | None = None


Maker = Callable[[Float[Tensor, "n d"], Kernel, int, int, torch.Generator | None], Rules]


@dataclass(frozen=True)
class Rival:
    """A method by its name.

    Arguments:
        name: As the tables print it.
        make: From the pool, a kernel, m, the number of repetitions and a generator to that many rules.
        takes_kernel: Whether the kernel matters to it.
        own_weights_only: Whether its nodes are plain draws, so that other weights would make another method of it.
        missing: Why it cannot run here, or None.
        sized: Whether it works at this number of nodes in this dimension.

    Example:
        >>> rival = Rival("the first draws", lambda pool, kernel, m, sets, _: Rules(pool[:m].expand(sets, m, -1)))
        >>> from amsip import SquaredExponential
        >>> rival(torch.zeros(9, 2), SquaredExponential(1.0), 4, None)[0].shape
        torch.Size([4, 2])
    """

    name: str
    make: Maker = field(repr=False)
    takes_kernel: bool = True
    own_weights_only: bool = False
    missing: Callable[[], str | None] = field(default=lambda: None, repr=False)
    sized: Callable[[int, int], bool] = field(default=lambda m, dim: True, repr=False)

    def __call__(
        self, pool: Float[Tensor, "n d"], kernel: Kernel, m: int, generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"] | None]:
        """One rule: nodes and the rival's own weights, if it has any."""
        rules = self.make(pool, kernel, m, 1, generator)
        return rules.nodes[0], None if rules.weights is None else rules.weights[0]

    def repeat(
        self, pool: Float[Tensor, "n d"], kernel: Kernel, m: int, sets: int, generator: torch.Generator | None = None
    ) -> Rules:
        """Independent rules in one call, with the time of a call that makes a single one."""
        rules = self.make(pool, kernel, m, sets, generator)
        if rules.ms is not None:
            return rules
        return replace(rules, ms=milliseconds(lambda: self.make(pool, kernel, m, 1, generator)))


def random_rows(n: int, m: int, sets: int, generator: torch.Generator | None) -> Tensor:
    """For every repetition, m distinct row numbers out of n."""
    return torch.rand(sets, n, generator=generator).topk(m, dim=-1).indices


def random_seed(generator: torch.Generator | None) -> int:
    """A seed for a library that wants an integer."""
    return int(torch.randint(2**31 - 1, (), generator=generator))
