"""The concrete kernel mean embeddings, and the rules by which those of composite kernels follow from their parts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _linalg
from amsip.kernels import Kernel, Octaves, Polynomial, Radial, SquaredExponential, Sum, Whitened, sum_terms
from amsip.references.base import Embedding, Moments, Reference

ENERGY_ROWS = 256


def embed(reference: Reference, kernel: Kernel, elementary: Callable[[Kernel], Embedding]) -> Embedding:
    """Composite kernels by linearity, polynomials by moments, whitened ones in their chart, others by `elementary`."""
    match kernel:
        case Sum():
            parts = tuple((c, embed(reference, k, elementary)) for c, k in kernel.terms)
            return SumEmbedding(kernel, reference.moments(), parts)
        case Polynomial():
            return MomentEmbedding(kernel, reference.moments())
        case Whitened():
            chart = kernel.whitening
            return WhitenedEmbedding(kernel, reference.moments(), reference.whiten(chart).embed(kernel.kernel))
        case _:
            return elementary(kernel)


@dataclass(frozen=True, eq=False)
class SumEmbedding(Embedding):
    """The embedding under a positive combination of kernels: the same combination of embeddings."""

    kernel: Sum
    moments: Moments
    parts: tuple[tuple[float, Embedding], ...]

    @property
    def effective_draws(self) -> float | Float[Tensor, "*q"]:
        return min((part.effective_draws for _, part in self.parts), key=lambda n: float(torch.as_tensor(n).min()))

    @cached_property
    def energy(self) -> Float[Tensor, "*q"]:
        return sum_terms([c * part.energy for c, part in self.parts])

    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        return sum_terms([c * part.mean(nodes) for c, part in self.parts])

    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        pairs = [(c, *part.mean_and_grad(nodes)) for c, part in self.parts]
        return sum_terms([c * value for c, value, _ in pairs]), sum_terms([c * grad for c, _, grad in pairs])


@dataclass(frozen=True, eq=False)
class MomentEmbedding(Embedding):
    r"""The embedding under a polynomial kernel, exact from the mean a and the second moment S of any reference.

    $$\mu(z) = a^\top z / s + z^\top S z / s^2, \qquad c = \|a\|^2 / s + \|S\|_F^2 / s^2$$
    """

    kernel: Polynomial
    moments: Moments

    @cached_property
    def _second(self) -> Tensor:
        mean, cov = (moment.to(torch.float64) for moment in self.moments)
        return cov + mean[..., :, None] * mean[..., None, :]

    @cached_property
    def energy(self) -> Float[Tensor, "*q"]:
        scale = torch.as_tensor(self.kernel.scale, dtype=torch.float64, device=self._second.device)
        linear = self.moments[0].to(torch.float64).square().sum(-1) / scale
        if self.kernel.degree == 1:
            return linear
        return linear + self._second.square().sum((-2, -1)) / scale**2

    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        return self.mean_and_grad(nodes)[0]

    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        return self.kernel.sum_and_grad_of_moments(nodes, self.moments[0].to(nodes), self._second.to(nodes))


@dataclass(frozen=True, eq=False)
class WhitenedEmbedding(Embedding):
    """The embedding under a whitened kernel: that of the whitened reference, read through the chart."""

    kernel: Whitened
    moments: Moments
    inner: Embedding

    @property
    def effective_draws(self) -> float | Float[Tensor, "*q"]:
        return self.inner.effective_draws

    @property
    def energy(self) -> Float[Tensor, "*q"]:
        return self.inner.energy

    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        return self.inner.mean(self.kernel.whitening.forward(nodes))

    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        value, grad = self.inner.mean_and_grad(self.kernel.whitening.forward(nodes))
        return value, self.kernel.whitening.pull_back(grad)


@dataclass(frozen=True, eq=False)
class AtomsEmbedding(Embedding):
    r"""Kernel sums over weighted atoms, in blocks: a million atoms take bounded memory.

    $$\mu(z) = \sum_\ell \alpha_\ell k(x_\ell, z), \qquad
      c = \sum_{\ell, \ell'} \alpha_\ell \alpha_{\ell'} k(x_\ell, x_{\ell'})$$

    The self-affinity is the V-statistic: the exact value for the empirical measure.
    """

    kernel: Kernel
    moments: Moments
    atoms: Float[Tensor, "*q n d"]
    weights: Float[Tensor, "*q n"]

    @property
    def effective_draws(self) -> Float[Tensor, "*q"]:
        return 1.0 / self.weights.square().sum(-1)

    @cached_property
    def energy(self) -> Float[Tensor, "*q"]:
        # in float64, for it is what remains when the discrepancy has cancelled
        # few rows of each of many queries, so that a block keeps many columns
        height = max(1, ENERGY_ROWS // self.atoms.shape[:-2].numel())
        with torch.no_grad():
            parts = [
                (self.weights[..., rows] * self._sum(self.atoms[..., rows, :].to(torch.float64))).sum(-1)
                for rows in _linalg.blocks(_linalg.BLOCK_ENTRIES // height, self.atoms.shape[-2])
            ]
        return sum_terms(parts)

    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        if nodes.requires_grad and not self._graph_beyond():
            return _Mean.apply(nodes, self)
        return self._sum(nodes)

    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        if nodes.requires_grad and isinstance(self.kernel, Radial) and not self._graph_beyond():
            return _MeanAndGrad.apply(nodes, self)
        return self._sum_and_grad(nodes)

    def _hessian_product(self, nodes: Tensor, v: Tensor) -> Tensor:
        kernel = self.kernel
        assert isinstance(kernel, Radial)

        def term(block: slice) -> tuple[Tensor, ...]:
            return (kernel.weighted_hessian_product(nodes, *self._block(block, nodes), v),)

        return self._blocked(term, nodes)[0]

    def _sum_and_grad(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        def term(block: slice) -> tuple[Tensor, ...]:
            return self.kernel.weighted_sum_and_grad(nodes, *self._block(block, nodes))

        value, grad = self._blocked(term, nodes)
        return value, grad

    def _sum(self, nodes: Tensor) -> Tensor:
        def term(block: slice) -> tuple[Tensor, ...]:
            return (self.kernel.weighted_sum(nodes, *self._block(block, nodes)),)

        return self._blocked(term, nodes)[0]

    def _block(self, block: slice, nodes: Tensor) -> tuple[Tensor, Tensor]:
        return self.atoms[..., block, :].to(nodes), self.weights[..., block].to(nodes)

    def _blocked(self, term: Callable[[slice], tuple[Tensor, ...]], nodes: Tensor) -> tuple[Tensor, ...]:
        queries = torch.broadcast_shapes(nodes.shape[:-2], self.atoms.shape[:-2])
        recording = torch.is_grad_enabled() and (nodes.requires_grad or self._graph_beyond())
        rows = nodes.shape[-2] * queries.numel()
        return _linalg.blocked_sum(term, rows, self.atoms.shape[-2], recording=recording)

    def _graph_beyond(self) -> bool:
        """Whether anything but the nodes may be differentiated."""
        bandwidth = getattr(self.kernel, "bandwidth", None)
        others = (self.atoms, self.weights, bandwidth)
        return any(isinstance(other, Tensor) and other.requires_grad for other in others)


class _Mean(torch.autograd.Function):
    """mu at the nodes; its gradient is had in the same pass, so that nothing large is stored or computed twice."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, embedding: AtomsEmbedding) -> Tensor:
        value, grad = embedding._sum_and_grad(nodes)
        ctx.save_for_backward(nodes, grad)
        ctx.embedding = embedding
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        nodes, grad = ctx.saved_tensors
        if torch.is_grad_enabled():
            grad = ctx.embedding.mean_and_grad(nodes)[1]
        return cotangent[..., None] * grad, None


class _MeanAndGrad(torch.autograd.Function):
    """mu and its gradient at the nodes; backwards it takes one product with the Hessian of mu."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, embedding: AtomsEmbedding) -> tuple[Tensor, Tensor]:
        value, grad = embedding._sum_and_grad(nodes)
        ctx.save_for_backward(nodes, grad)
        ctx.embedding = embedding
        return value, grad

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        nodes, grad = ctx.saved_tensors
        if torch.is_grad_enabled():
            outputs = ctx.embedding._sum_and_grad(nodes)
            return torch.autograd.grad(outputs, nodes, cotangents, create_graph=True)[0], None
        return cotangents[0][..., None] * grad + ctx.embedding._hessian_product(nodes, cotangents[1]), None


@dataclass(frozen=True, eq=False)
class SmoothedMixtureEmbedding(Embedding):
    r"""A Gaussian mixture under squared-exponential kernels, exact.

    $$\mu(z) = \sum_k \pi_k |I + \Sigma_k / h^2|^{-1/2}
      \exp\big(-\tfrac12 (z - m_k)^\top (\Sigma_k + h^2 I)^{-1} (z - m_k)\big)$$

    and c likewise from all pairs of components, with Sigma_k + Sigma_l + h^2 I.
    """

    kernel: SquaredExponential
    moments: Moments
    shares: Float[Tensor, "*q c"]
    means: Float[Tensor, "*q c d"]
    covs: Float[Tensor, "*q c d d"]

    @cached_property
    def energy(self) -> Float[Tensor, "*q"]:
        means, covs, shares = (part.to(torch.float64) for part in (self.means, self.covs, self.shares))
        gaps = means[..., :, None, :] - means[..., None, :, :]
        pairs = covs[..., :, None, :, :] + covs[..., None, :, :, :]
        height, precision = _smoothing(pairs, self._h2[..., None, None])
        affinity = height * torch.exp(-0.5 * torch.einsum("...i,...ij,...j->...", gaps, precision, gaps))
        return torch.einsum("...k,...kl,...l->...", shares, affinity, shares)

    def mean(self, nodes: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
        mass, _ = self._masses_and_pulls(nodes)
        return mass.sum(-2)

    def mean_and_grad(self, nodes: Float[Tensor, "*q m d"]) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        mass, pulls = self._masses_and_pulls(nodes)
        return mass.sum(-2), -(mass[..., None] * pulls).sum(-3)

    def _masses_and_pulls(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        height, precision = self._smoothed
        gaps = nodes[..., None, :, :] - self.means.to(nodes)[..., :, None, :]
        pulls = gaps @ precision.to(nodes)
        heights = (self.shares * height).to(nodes)
        return heights[..., None] * torch.exp(-0.5 * (gaps * pulls).sum(-1)), pulls

    @cached_property
    def _smoothed(self) -> tuple[Tensor, Tensor]:
        return _smoothing(self.covs.to(torch.float64), self._h2[..., None])

    @cached_property
    def _h2(self) -> Tensor:
        return torch.as_tensor(self.kernel.bandwidth, dtype=torch.float64, device=self.means.device).square()


def smoothed_mixture(kernel: Kernel, moments: Moments, shares: Tensor, means: Tensor, covs: Tensor) -> Embedding:
    """The exact embedding of a Gaussian mixture, for the kernels that have one."""
    match kernel:
        case SquaredExponential():
            return SmoothedMixtureEmbedding(kernel, moments, shares, means, covs)
        case Octaves():
            components = kernel.components()
            parts = tuple((a, SmoothedMixtureEmbedding(k, moments, shares, means, covs)) for a, k in components)
            return SumEmbedding(Sum(tuple(components)), moments, parts)
        case _:
            raise ValueError(
                f"A Gaussian reference has no closed-form embedding under {type(kernel).__name__}: "
                "embed draws of it instead, `Samples(reference.sample(4000))`."
            )


def _smoothing(covs: Tensor, h2: Tensor) -> tuple[Tensor, Tensor]:
    """|I + S/h^2|^(-1/2) and (S + h^2 I)^(-1)."""
    identity = torch.eye(covs.shape[-1], dtype=covs.dtype, device=covs.device)
    factor = torch.linalg.cholesky(covs + h2[..., None, None] * identity)
    log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    height = torch.exp(0.5 * (covs.shape[-1] * h2.log() - log_det))
    return height, torch.cholesky_inverse(factor)
