"""The kernel and the map used when the user names none, chosen by measurement."""

from amsip.kernels import Kernel, Octaves, Polynomial, Whitened
from amsip.references.base import Reference
from amsip.whitening import Whitening

LENGTH = 1.4
MOMENTS = 3.0


def default_kernel(reference: Reference) -> Whitened:
    """Octaves plus a degree-2 polynomial, in coordinates whitened by the reference.

    Example:
        >>> import torch; from amsip import Samples
        >>> default_kernel(Samples(torch.randn(100, 4))).kernel.terms[1][0]
        3.0
    """
    return Whitened(whitened_kernel(reference.dim), Whitening.of_moments(*reference.moments()))


def whitened_kernel(dim: int) -> Kernel:
    """The default kernel in whitened coordinates."""
    return Octaves.matern(LENGTH * dim**0.5) + MOMENTS * Polynomial(degree=2, scale=float(dim))
