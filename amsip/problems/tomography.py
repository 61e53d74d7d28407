"""Limited-angle tomography with a Gaussian field and Gaussian noise: the paper's first conditional problem."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.problems.linear import LinearGaussian
from amsip.problems.projector import RayProjector
from amsip.references.gaussian import Gaussian

PAPER_GEOMETRY = RayProjector(size=16, angles=16, detectors=16, steps=32, half_range=75.0)


def tomography(
    projector: RayProjector = PAPER_GEOMETRY,
    *,
    noise: float = 0.8,
    shift: float = 0.5,
    power: float = 2.0,
    scale: float = 1.0,
) -> LinearGaussian:
    r"""An image seen through noisy ray sums over a restricted range of angles.

    $$x \sim \mathcal N\big(0,\ \tau^2 (\delta I + \Delta)^{-\alpha}\big), \qquad
      y = A x + \varepsilon, \quad \varepsilon \sim \mathcal N(0, \varsigma^2 I)$$

    Delta is the graph Laplacian of the pixel grid, each pixel joined to the two to four beside it. The defaults are
    the paper's problem: 16 x 16 pixels, 256 readings, seven informed directions. The constants of the prior were read
    in the authors' public successor repository; the implementation is independent.

    Arguments:
        projector: A.
        noise: The standard deviation of a reading.
        shift: delta, which bounds the variance of the smoothest fields.
        power: alpha, the smoothness.
        scale: tau.

    Example:
        >>> problem = tomography()
        >>> images, observations = problem.simulate(3, generator=torch.Generator().manual_seed(0))
        >>> images.shape, observations.shape, problem.posterior(observations).moments()[0].shape
        (torch.Size([3, 256]), torch.Size([3, 256]), torch.Size([3, 256]))
        >>> [round(value, 2) for value in problem.informed.spectrum[:3].tolist()], problem.informed.rank
        ([26.63, 10.18, 7.51], 7)
    """
    for name, value in (("noise", noise), ("shift", shift), ("power", power), ("scale", scale)):
        _checks.positive(name, value)
    values, vectors = torch.linalg.eigh(grid_laplacian(projector.size))
    cov = (vectors * (scale**2 * (shift + values) ** -power)) @ vectors.mT
    prior = Gaussian(torch.zeros_like(values), 0.5 * (cov + cov.mT))
    variances = torch.full((projector.readings,), noise**2, dtype=torch.float64)
    return LinearGaussian(prior, projector.matrix.to_dense(), variances)


def grid_laplacian(size: int) -> Float[Tensor, "pixels pixels"]:
    """The graph Laplacian of a square grid: each pixel's number of neighbours, less one for each of them.

    Example:
        >>> grid_laplacian(3).diagonal()
        tensor([2., 3., 2., 3., 4., 3., 2., 3., 2.], dtype=torch.float64)
    """
    _checks.at_least("size", size, 2)
    bonds = torch.zeros(size, size, dtype=torch.float64)
    bonds[range(size - 1), range(1, size)] = -1.0
    line = bonds + bonds.mT
    line = line - torch.diag(line.sum(-1))
    identity = torch.eye(size, dtype=torch.float64)
    return torch.kron(line, identity) + torch.kron(identity, line)
