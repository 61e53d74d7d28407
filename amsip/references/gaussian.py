"""A single Gaussian."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.references.mixture import Mixture


def gaussian(mean: Float[Tensor, "*q d"], cov: Float[Tensor, "*q d d"]) -> Mixture:
    r"""The Gaussian $\mathcal N(m, \Sigma)$, as a mixture of one component.

    Example:
        >>> gaussian(torch.zeros(3), torch.eye(3)).dim
        3
    """
    mean, cov = torch.as_tensor(mean), torch.as_tensor(cov)
    return Mixture(torch.ones_like(mean[..., :1]), mean[..., None, :], cov[..., None, :, :])
