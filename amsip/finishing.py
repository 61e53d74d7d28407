"""The closed-form finish: nodes are moved by the affine map that makes a rule's mean and covariance exact."""

from functools import reduce

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip.kernels import Kernel, Polynomial, Sum

# one reference may serve many rules
Moments = tuple[Float[Tensor, "*#q d"], Float[Tensor, "*#q d d"]]

LEAST_SPREAD = 1e-3
LEAST_SIZE = 1e-6
NULL_SPREAD = 1e-8


def match_moments(
    nodes: Float[Tensor, "*q m d"], weights: Float[Tensor, "*q m"], moments: Moments
) -> Float[Tensor, "*q m d"]:
    r"""The nodes, moved by the affine map of least effort between the rule's moments and the reference's.

    $$z \mapsto a + T (z - a_Q), \qquad
      T = \Sigma^{1/2} \big(\Sigma^{1/2} C_Q \Sigma^{1/2}\big)^{-1/2} \Sigma^{1/2}$$

    No more nodes than coordinates, or signed weights, leave the rule's covariance C_Q singular or indefinite; then
    T is the multiple of the identity that matches the total variance, $\mathrm{tr}(\Sigma^{-1} T C_Q T) = d$: nodes
    that moved towards the centre return to the distance at which the draws lie. Where that variance is next to none
    or negative, only the mean is matched. Directions in which the reference has no spread are left alone.

    Arguments:
        nodes: The nodes z.
        weights: Their weights, of unit sum.
        moments: Mean a and covariance of the reference.

    Example:
        >>> z, w = torch.tensor([[-1.0], [3.0]]), torch.tensor([0.5, 0.5])
        >>> match_moments(z, w, (torch.zeros(1), torch.ones(1, 1))).flatten()
        tensor([-1.,  1.])
    """
    mean, cov = (part.to(torch.float64) for part in moments)
    z, w = nodes.to(torch.float64), weights.to(torch.float64)
    centred = z - (w[..., None] * z).sum(-2, keepdim=True)
    spread = (w[..., None] * centred).mT @ centred
    values, vectors = torch.linalg.eigh(cov)
    # in units of the largest variance, so that nothing under- or overflows; a single point has none
    largest = values[..., -1:]
    largest = torch.where(largest > 0, largest, torch.ones_like(largest))
    values = (values / largest).clamp_min(0.0)
    null = (values < NULL_SPREAD).to(values)
    root = (vectors * torch.where(null > 0, null, values).sqrt()[..., None, :]) @ vectors.mT
    missing = (vectors * null[..., None, :]) @ vectors.mT
    squared, axes = torch.linalg.eigh(root @ (spread / largest[..., None] + missing) @ root)
    definite = squared[..., 0] > LEAST_SPREAD * (values + null).amin(-1).square()
    inverse = (axes / squared.clamp_min(torch.finfo(torch.float64).tiny).sqrt()[..., None, :]) @ axes.mT
    # tr(Sigma^-1 C_Q), the directions without spread left out
    within = (1.0 - null) * ((spread @ vectors) * vectors).sum(-2) / (largest * values.clamp_min(NULL_SPREAD))
    identity = torch.eye(nodes.shape[-1], dtype=torch.float64, device=nodes.device)
    factor = _dilation(within.sum(-1), (1.0 - null).sum(-1))[..., None, None]
    dilation = factor * (identity - missing) + missing
    transport = torch.where(definite[..., None, None], root @ inverse @ root, dilation)
    return (mean[..., None, :] + centred @ transport.mT).to(nodes)


def _dilation(total: Float[Tensor, "*q"], wanted: Float[Tensor, "*#q"]) -> Float[Tensor, "*q"]:
    """The factor between two total variances; 1 where there is next to none, or less."""
    usable = total > LEAST_SIZE * wanted
    return torch.where(usable, (wanted / torch.where(usable, total, 1.0)).sqrt(), 1.0)


def sees_covariances(kernel: Kernel) -> Bool[Tensor, "*q"]:
    """Whether a kernel asks for second moments, through a polynomial of degree 2 that is not switched off.

    Example:
        >>> sees_covariances(Polynomial(1)), sees_covariances(2.0 * Polynomial(2))
        (tensor(False), tensor(True))
    """
    if isinstance(kernel, Sum):
        return reduce(torch.logical_or, (sees_covariances(k) for _, k in kernel.terms))
    if not isinstance(kernel, Polynomial) or kernel.degree < 2:
        return torch.tensor(False)
    return torch.as_tensor(kernel.scale).isfinite()
