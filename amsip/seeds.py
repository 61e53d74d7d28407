"""The initial nodes: draws of the reference, whose equal-weight average is the Monte Carlo floor."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.references.base import Reference
from amsip.references.samples import Samples


def draw_seeds(reference: Reference, m: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "*q m d"]:
    """m independent draws; of a finite sample, distinct rows while they last.

    Example:
        >>> from amsip import Samples
        >>> draw_seeds(Samples(torch.arange(5.0)[:, None]), 5).sum().item()
        10.0
    """
    _checks.instance("reference", reference, Reference, "amsip.Samples(draws)")
    m = _checks.budget(m)
    _checks.randomness(generator)
    if isinstance(reference, Samples):
        return reference.subset(m, generator=generator)
    return reference.sample(m, generator=generator)
