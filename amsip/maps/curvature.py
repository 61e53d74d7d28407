"""The Hessian of a kernel mean at the nodes: what Newton's model needs beyond the Gauss-Newton one."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _linalg
from amsip.derivatives import weighted_hessian
from amsip.kernels import sum_terms
from amsip.references.base import Embedding
from amsip.references.embeddings import (
    AtomsEmbedding,
    MomentEmbedding,
    SmoothedMixtureEmbedding,
    SumEmbedding,
    WhitenedEmbedding,
)

DIFFERENCE = 1e-5


def mean_hessian(embedding: Embedding, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m d d"]:
    r"""$\nabla^2 \mu(z_j)$: in closed form for the package's own embeddings, by central differences for any other.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> embedding = Samples(torch.zeros(1, 1)).embed(SquaredExponential(2.0))
        >>> mean_hessian(embedding, torch.zeros(1, 1)).item()
        -0.25
    """
    match embedding:
        case SumEmbedding():
            return sum_terms([c * mean_hessian(part, nodes) for c, part in embedding.parts])
        case WhitenedEmbedding():
            chart = embedding.kernel.whitening
            root = chart.inverse_root[..., None, :, :]
            return root.mT @ mean_hessian(embedding.inner, chart.forward(nodes)) @ root
        case MomentEmbedding():
            return _of_moments(embedding, nodes)
        case SmoothedMixtureEmbedding():
            return _of_mixture(embedding, nodes)
        case AtomsEmbedding():
            return _of_atoms(embedding, nodes)
        case _:
            return _by_differences(embedding, nodes)


def _of_moments(embedding: MomentEmbedding, nodes: Tensor) -> Tensor:
    mean, cov = embedding.moments
    second = cov + mean[..., :, None] * mean[..., None, :]
    curvature = 2.0 * (embedding.kernel.degree - 1) / embedding.kernel.scale_for(second) ** 2 * second
    return curvature[..., None, :, :].expand(*nodes.shape, -1)


def _of_mixture(embedding: SmoothedMixtureEmbedding, nodes: Tensor) -> Tensor:
    means, covs = embedding.means.to(nodes), embedding.covs.to(nodes)
    h2 = torch.as_tensor(embedding.kernel.bandwidth, dtype=nodes.dtype, device=nodes.device).square()
    identity = torch.eye(nodes.shape[-1], dtype=nodes.dtype, device=nodes.device)
    factor = torch.linalg.cholesky(covs + h2[..., None, None, None] * identity)
    gaps = nodes[..., None, :, :] - means[..., :, None, :]
    pulls = torch.cholesky_solve(gaps.mT, factor).mT
    log_height = 0.5 * nodes.shape[-1] * h2.log()[..., None] - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    mass = embedding.shares.to(nodes)[..., None] * torch.exp(log_height[..., None] - 0.5 * (gaps * pulls).sum(-1))
    outer = torch.einsum("...km,...kma,...kmb->...mab", mass, pulls, pulls)
    return outer - torch.einsum("...km,...kab->...mab", mass, torch.cholesky_inverse(factor))


def _of_atoms(embedding: AtomsEmbedding, nodes: Tensor) -> Tensor:
    atoms, weights = embedding.atoms, embedding.weights

    def term(block: slice) -> tuple[Tensor, ...]:
        inside = atoms[..., block, :].to(nodes), weights[..., block].to(nodes)
        return (weighted_hessian(embedding.kernel, nodes, *inside),)

    rows = max(nodes[..., 0].numel(), nodes.shape[-1] ** 2 * atoms.shape[:-2].numel())
    return _linalg.blocked_sum(term, rows, atoms.shape[-2], recording=False)[0]


def _by_differences(embedding: Embedding, nodes: Tensor) -> Tensor:
    m, d = nodes.shape[-2:]
    scale = DIFFERENCE * embedding.moments[1].diagonal(dim1=-2, dim2=-1).mean(-1).sqrt()[..., None, None]
    step = scale.to(nodes) * torch.eye(d, dtype=nodes.dtype, device=nodes.device)
    shifted = torch.cat([nodes[..., None, :] + step[..., None, :, :], nodes[..., None, :] - step[..., None, :, :]], -2)
    slopes = embedding.mean_and_grad(shifted.flatten(-3, -2))[1].unflatten(-2, (m, 2, d))
    hessian = (slopes[..., 0, :, :] - slopes[..., 1, :, :]) / (2.0 * scale[..., None].to(nodes))
    return 0.5 * (hessian + hessian.mT)
