"""How the mean shift reads a reference: through its embedding, through fresh draws, or through its score."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import SquaredExponential
from amsip.references.base import Embedding, Reference, Score
from amsip.references.embeddings import AtomsEmbedding
from amsip.references.samples import Samples

LEAST_LOG = -600.0
MeanAndGrad = tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]


@runtime_checkable
class Reading(Protocol):
    """How the iteration reads the reference: the kernel mean at the nodes and its gradient, up to one positive factor.

    The map does not see the total mass (proposition 1 of the paper), so readings may be unnormalised.
    """

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> MeanAndGrad:
        """v_0 and its gradient, each query in a scale of its own."""
        ...


def read_embedding(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> MeanAndGrad:
    r"""The embedding as it stands; for atoms under a squared exponential in log space, so that distance costs nothing.

    Example:
        >>> embedding = Samples(torch.tensor([[0.0], [1.0]])).embed(SquaredExponential(0.01))
        >>> mean, grad = read_embedding(torch.tensor([[5.0]]), embedding)
        >>> mean.item(), round((grad / mean).item() * 0.01**2, 4)
        (1.0, -4.0)
    """
    if isinstance(embedding, AtomsEmbedding) and isinstance(embedding.kernel, SquaredExponential):
        log_mean, log_grad = _log_sums(nodes, embedding, embedding.kernel)
        return _from_logs(log_mean, log_grad)
    return embedding.mean_and_grad(nodes)


@dataclass(frozen=True, eq=False)
class FreshSamples:
    r"""Reads the reference through new draws at every step: the score-free route.

    $$v_0(z) \approx \frac1L \sum_\ell k(x_\ell, z), \qquad V_1(z) \approx \frac1L \sum_\ell x_\ell\, k(x_\ell, z)$$

    Equation (7) of the paper.

    Arguments:
        reference: Where the draws come from, in the coordinates of the nodes.
        count: L, the number of draws a step.
        generator: The source of randomness.

    Example:
        >>> from amsip import Gaussian
        >>> reading = FreshSamples(Gaussian(torch.zeros(1), torch.eye(1)), 100)
        >>> reading(torch.zeros(3, 1), Samples(torch.zeros(1, 1)).embed(SquaredExponential(1.0)))[0].shape
        torch.Size([3])
    """

    reference: Reference
    count: int
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        _checks.at_least("count", self.count, 1)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> MeanAndGrad:
        draws = self.reference.sample(self.count, generator=self.generator)
        return read_embedding(nodes, Samples(draws).embed(embedding.kernel))


@dataclass(frozen=True, eq=False)
class SmoothedScore:
    r"""Reads the reference through its unnormalised log density and its score: the multi-point Stein estimate.

    $$\sigma^2 \nabla \log v_0(z) = \sigma^2 \sum_q p_q(z)\, \nabla \log \rho(z + \sigma \xi_q), \qquad
      p_q \propto \rho(z + \sigma \xi_q), \quad \xi_q \sim \mathcal N(0, I)$$

    Equation (8) of the paper; log v_0 itself is the log-sum-exp of the same densities. For the squared exponential,
    whose smoothing of a density is a Gaussian average.

    Arguments:
        log_density: log rho up to a constant, on `(..., n, d)`.
        score: Its gradient.
        inner: Q, the number of points about each node.
        generator: The source of randomness.

    Raises:
        TypeError: The kernel is not a squared exponential.

    Example:
        >>> from amsip import Gaussian
        >>> posterior = Gaussian(torch.zeros(1), torch.eye(1))
        >>> reading = SmoothedScore(posterior.log_prob, posterior.score, 4000, torch.Generator().manual_seed(0))
        >>> mean, grad = reading(torch.ones(1, 1), posterior.embed(SquaredExponential(1.0)))
        >>> abs((grad / mean).item() + 0.5) < 0.05
        True
    """

    log_density: Callable[[Float[Tensor, "*q n d"]], Float[Tensor, "*q n"]]
    score: Score
    inner: int
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        _checks.at_least("inner", self.inner, 1)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> MeanAndGrad:
        kernel = embedding.kernel
        if not isinstance(kernel, SquaredExponential):
            raise TypeError(f"`SmoothedScore` needs a SquaredExponential kernel: got {type(kernel).__name__}.")
        m, d = nodes.shape[-2:]
        shape = (*nodes.shape[:-2], m, self.inner, d)
        noise = torch.randn(shape, generator=self.generator, dtype=nodes.dtype, device=nodes.device)
        points = (nodes[..., None, :] + bandwidth_column(kernel, nodes)[..., None] * noise).flatten(-3, -2)
        log_density = self.log_density(points).unflatten(-1, (m, self.inner))
        score = self.score(points).unflatten(-2, (m, self.inner))
        log_grad = (torch.softmax(log_density, -1)[..., None] * score).sum(-2)
        return _from_logs(torch.logsumexp(log_density, -1), log_grad)


def bandwidth_column(kernel: SquaredExponential, like: Tensor) -> Tensor:
    """The bandwidth, shaped to divide a (..., m, n) array.

    Example:
        >>> bandwidth_column(SquaredExponential(torch.tensor([1.0, 2.0])), torch.zeros(2, 3, 4)).shape
        torch.Size([2, 1, 1])
    """
    return torch.as_tensor(kernel.bandwidth, dtype=like.dtype, device=like.device)[..., None, None]


def _log_sums(nodes: Tensor, embedding: AtomsEmbedding, kernel: SquaredExponential) -> tuple[Tensor, Tensor]:
    """log v_0 and its gradient over the atoms, block by block, rescaled to the largest term met so far."""
    h2 = bandwidth_column(kernel, nodes).square()
    top = torch.full_like(nodes[..., 0], -torch.inf)
    mass, pull = torch.zeros_like(top), torch.zeros_like(nodes)
    rows = nodes.shape[-2] * torch.broadcast_shapes(nodes.shape[:-2], embedding.atoms.shape[:-2]).numel()
    for block in _linalg.blocks(rows, embedding.atoms.shape[-2]):
        atoms, weights = embedding.atoms[..., block, :].to(nodes), embedding.weights[..., block].to(nodes)
        log_mass = weights.log()[..., None, :] - 0.5 * _linalg.squared_distances(nodes, atoms) / h2
        higher = torch.maximum(top, log_mass.amax(-1)).clamp_min(torch.finfo(top.dtype).min)
        fade = torch.exp(top - higher)
        share = torch.exp(log_mass - higher[..., None])
        total = share.sum(-1)
        mass = mass * fade + total
        pull = pull * fade[..., None] + share @ atoms - total[..., None] * nodes
        top = higher
    return top + mass.log(), pull / mass[..., None] / h2


def _from_logs(log_mean: Tensor, log_grad: Tensor) -> tuple[Tensor, Tensor]:
    """v_0 and its gradient with the largest v_0 of each query put at one."""
    relative = (log_mean - log_mean.amax(-1, keepdim=True)).to(torch.float64)
    # a node out of reach keeps a mass one can divide by, so that it still follows its own gradient
    mean = torch.exp(relative.clamp_min(LEAST_LOG))
    return mean, mean[..., None] * log_grad
