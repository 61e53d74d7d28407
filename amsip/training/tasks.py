"""What a map is trained on: seeds, the embedding of their reference and, where it matters, the observation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.kernels import Kernel, Whitened
from amsip.references.base import Embedding, Reference
from amsip.references.samples import Samples
from amsip.seeds import draw_seeds

BUDGETS = (4, 8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class Task:
    """One batch of work for a map.

    Arguments:
        seeds: Where the nodes start.
        embedding: The reference they are to integrate, in the coordinates of the seeds.
        observation: What was observed, for maps that read it.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(100, 2)
        >>> Task(draws[:8], Samples(draws).embed(SquaredExponential(1.0))).observation is None
        True
    """

    seeds: Float[Tensor, "*q m d"]
    embedding: Embedding
    observation: Tensor | None = None


Tasks = Callable[[torch.Generator], Task]
Stream = Callable[[torch.Generator], tuple[Reference, Tensor | None]]


@dataclass(frozen=True, eq=False)
class ReferenceTasks:
    r"""Fresh seeds of one reference (or of a batch of them) at each step, at a budget drawn from a list.

    $$M \sim \mathrm{Uniform}\{4, 8, 16, 32, 64\}, \qquad z^0_{1:M} \sim \rho$$

    Arguments:
        reference: What the map is to integrate.
        kernel: The kernel of the discrepancy; under a whitened one everything happens in its chart.
        budgets: The numbers of nodes to choose from.
        batch: Independent seed sets a step, for each query of the reference.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = Samples(torch.randn(100, 2))
        >>> tasks = ReferenceTasks(draws, SquaredExponential(1.0), budgets=(5,), batch=3)
        >>> tasks(torch.Generator().manual_seed(0)).seeds.shape
        torch.Size([3, 5, 2])
    """

    reference: Reference
    kernel: Kernel
    budgets: tuple[int, ...] = BUDGETS
    batch: int = 64

    def __post_init__(self) -> None:
        _checks.at_least("batch", self.batch, 1)
        object.__setattr__(self, "budgets", tuple(_checks.budget(m) for m in self.budgets))

    def __call__(self, generator: torch.Generator) -> Task:
        m = draw_budget(self.budgets, generator)
        return Task(seed_sets(self._replicated, m, self.batch, generator), self._embedding)

    @cached_property
    def _charted(self) -> tuple[Reference, Kernel]:
        return in_chart(self.reference, self.kernel)

    @cached_property
    def _embedding(self) -> Embedding:
        reference, kernel = self._charted
        return reference.embed(kernel)

    @cached_property
    def _replicated(self) -> Reference:
        return replicated(self._charted[0], self.batch)


@dataclass(frozen=True, eq=False)
class StreamTasks:
    """A fresh batch of references, with their observations, at each step.

    Arguments:
        stream: From a generator to a reference with query axes, and the observation of each query (or None).
        kernel: The kernel, or how it follows from a reference (`amsip.defaults.default_kernel` whitens each query).
        budgets: The numbers of nodes to choose from.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> def stream(generator):
        ...     y = torch.randn(7, 3, generator=generator)
        ...     return Samples(y[:, None, :] + torch.randn(7, 50, 3, generator=generator)), y
        >>> tasks = StreamTasks(stream, SquaredExponential(1.0), budgets=(5,))
        >>> tasks(torch.Generator().manual_seed(0)).seeds.shape
        torch.Size([7, 5, 3])
    """

    stream: Stream
    kernel: Kernel | Callable[[Reference], Kernel]
    budgets: tuple[int, ...] = BUDGETS

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", tuple(_checks.budget(m) for m in self.budgets))

    def __call__(self, generator: torch.Generator) -> Task:
        m = draw_budget(self.budgets, generator)
        reference, observation = self.stream(generator)
        kernel = self.kernel if isinstance(self.kernel, Kernel) else self.kernel(reference)
        reference, kernel = in_chart(reference, kernel)
        return Task(draw_seeds(reference, m, generator=generator), reference.embed(kernel), observation)


def in_chart(reference: Reference, kernel: Kernel) -> tuple[Reference, Kernel]:
    """The reference in the kernel's own coordinates, and the kernel there: where `quadrature` lets maps work."""
    while isinstance(kernel, Whitened):
        reference, kernel = reference.whiten(kernel.whitening), kernel.kernel
    return reference, kernel


def draw_budget(budgets: tuple[int, ...], generator: torch.Generator) -> int:
    """One of the budgets, uniformly."""
    return budgets[int(torch.randint(len(budgets), (), generator=generator))]


def replicated(reference: Reference, batch: int) -> Reference:
    """A sample viewed many times along a new leading axis, so that each seed set is drawn without replacement."""
    if not isinstance(reference, Samples):
        return reference
    weights = reference.weights
    return Samples(
        reference.atoms.expand(batch, *reference.atoms.shape),
        None if weights is None else weights.expand(batch, *weights.shape),
    )


def seed_sets(reference: Reference, m: int, batch: int, generator: torch.Generator) -> Float[Tensor, "b *q m d"]:
    """Independent seed sets, `batch` for each query."""
    if isinstance(reference, Samples):
        return draw_seeds(reference, m, generator=generator)
    draws = reference.sample(batch * m, generator=generator)
    return draws.unflatten(-2, (batch, m)).movedim(-3, 0)
