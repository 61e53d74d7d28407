"""Mean shift: one point climbing to a mode, and many that spread over the whole measure because they interact."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg, derivatives
from amsip.kernels import Kernel, Polynomial, Radial, SquaredExponential, Sum, Whitened, sum_terms
from amsip.references.base import Embedding, Reference, Score
from amsip.references.embeddings import AtomsEmbedding
from amsip.references.samples import Samples
from amsip.weights import JITTER

LEAST_LOG = -600.0
MeanAndGrad = tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]


@runtime_checkable
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
        log_mean, log_grad = _log_sums(nodes, embedding)
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
        points = (nodes[..., None, :] + _column(kernel, nodes)[..., None] * noise).flatten(-3, -2)
        log_density = self.log_density(points).unflatten(-1, (m, self.inner))
        score = self.score(points).unflatten(-2, (m, self.inner))
        log_grad = (torch.softmax(log_density, -1)[..., None] * score).sum(-2)
        return _from_logs(torch.logsumexp(log_density, -1), log_grad)


@dataclass(frozen=True, eq=False)
class MeanShift:
    r"""The damped interacting mean shift.

    $$z \leftarrow (1 - \lambda) z + \lambda \Psi(z), \qquad
      \Psi(z)_i = \frac{(K^{-1} V_1)_i}{(K^{-1} v_0)_i}$$

    Equation (6) of the paper, for the squared exponential. For another kernel with shadow s, and w = K^{-1} v_0,

    $$\Psi(z) - z = \mathrm{diag}(w)^{-1} S^{-1} \nabla r(z), \qquad S_{ij} = s(z_i, z_j), \quad
      r = v_0 - \sum_j w_j k(\cdot, z_j)$$

    which is the same map when s = k / h^2, and whose fixed points are the stationary points of the discrepancy under
    the mean-shift weights (proposition 3 of the paper). It can rise; `Descent` cannot.

    Arguments:
        steps: T, the number of steps.
        damping: lambda, the share of the way to Psi taken each time.
        bounds: A box that no node leaves, two numbers or two vectors.
        jitter: The ridge, relative to the mean diagonal of K.
        reading: How the reference is read; the embedding itself when not given.

    Example:
        >>> from amsip import mmd2, mean_shift_weights
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> embedding = Samples(draws).embed(SquaredExponential(1.0))
        >>> nodes = MeanShift(steps=50)(draws[:8], embedding)
        >>> scores = [mmd2(z, mean_shift_weights(z, embedding), embedding).item() for z in (draws[:8], nodes)]
        >>> scores[1] < 0.2 * scores[0]
        True
    """

    steps: int = 100
    damping: float = 0.5
    bounds: tuple[float | Float[Tensor, "d"], float | Float[Tensor, "d"]] | None = None
    jitter: float = JITTER
    reading: Reading = read_embedding

    def __post_init__(self) -> None:
        _checks.at_least("steps", self.steps, 0)
        _checks.at_least("damping", self.damping, 0.0)
        _checks.positive("jitter", self.jitter)
        if self.bounds is not None:
            _checks.ordered("bounds", *self.bounds)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The nodes after all steps."""
        for _ in range(self.steps):
            nodes = self.step(nodes, embedding)
        return nodes

    def step(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """One damped step, inside the box."""
        mean, grad = self.reading(nodes, embedding)
        moved = nodes + self.damping * interacting_shift(nodes, embedding.kernel, mean, grad, jitter=self.jitter)
        if self.bounds is None:
            return moved
        low, high = (torch.as_tensor(b, dtype=moved.dtype, device=moved.device) for b in self.bounds)
        return torch.minimum(torch.maximum(moved, low), high)


def interacting_shift(
    nodes: Float[Tensor, "*q m d"],
    kernel: Kernel,
    mean: Float[Tensor, "*q m"],
    grad: Float[Tensor, "*q m d"],
    *,
    jitter: float = JITTER,
) -> Float[Tensor, "*q m d"]:
    r"""$\Psi(z) - z$ from a reading of the reference; a node the reference does not reach stays where it is.

    Arguments:
        nodes: The nodes z.
        kernel: The kernel.
        mean: v_0, up to a positive factor.
        grad: Its gradient, with the same factor.
        jitter: The ridge, relative to the mean diagonal of the Gram.

    Raises:
        NumericalError: A ridged Gram has no Cholesky factor.

    Example:
        >>> embedding = Samples(torch.tensor([[0.0], [1.0]])).embed(SquaredExponential(2.0))
        >>> node = torch.tensor([[0.5]])
        >>> interacting_shift(node, embedding.kernel, *embedding.mean_and_grad(node)).item()
        0.0
    """
    exact = nodes.to(torch.float64)
    factor = _linalg.jittered_cholesky(kernel.gram(exact), jitter)
    weights = torch.cholesky_solve(mean.to(torch.float64)[..., None], factor)[..., 0]
    slope = grad.to(torch.float64) - kernel.weighted_grad(exact, exact, weights)
    if isinstance(kernel, Whitened):
        chart, inner = kernel.whitening.root.to(exact), kernel.kernel
        metric = _linalg.jittered_cholesky(shadow_gram(inner, kernel.whitening.forward(exact)), jitter)
        shift = torch.cholesky_solve(slope @ chart, metric) / weights[..., None] @ chart.mT
    else:
        metric = _linalg.jittered_cholesky(shadow_gram(kernel, exact), jitter)
        shift = torch.cholesky_solve(slope, metric) / weights[..., None]
    return torch.where(torch.isfinite(shift), shift, torch.zeros_like(shift)).to(nodes)


def shadow_gram(kernel: Kernel, x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m m"]:
    r"""The auxiliary Gram of the general-kernel map: what multiplies the identity in $\nabla_1 \nabla_2 k(x_i, x_j)$.

    For a radial kernel its shadow, for a polynomial the slope in x'z; it is positive definite where the kernel is.

    Example:
        >>> shadow_gram(SquaredExponential(2.0), torch.zeros(1, 1)).item()
        0.25
    """
    match kernel:
        case Sum():
            return sum_terms([c * shadow_gram(k, x) for c, k in kernel.terms])
        case Radial():
            return kernel.profile(_linalg.pairwise_squared_distances(x))[1]
        case Polynomial():
            return derivatives.polynomial_slope(kernel, x)
    raise TypeError(f"`kernel` must be radial, polynomial or a sum of such: got {type(kernel).__name__}.")


def classical_mean_shift(
    points: Float[Tensor, "*#q m d"],
    samples: Float[Tensor, "*#q n d"],
    kernel: Radial,
    weights: Float[Tensor, "*#q n"] | None = None,
) -> Float[Tensor, "*q m d"]:
    r"""One step of every point, by itself, towards a mode of the smoothed sample.

    $$z \mapsto \frac{\sum_\ell x_\ell\, s(x_\ell, z)}{\sum_\ell s(x_\ell, z)}$$

    Equation (5) of the paper, where the kernel is its own shadow.

    Arguments:
        points: The points z.
        samples: The draws x.
        kernel: A radial kernel.
        weights: One a draw; equal when not given.

    Example:
        >>> samples = torch.tensor([[0.0], [1.0], [9.0]])
        >>> classical_mean_shift(torch.tensor([[0.8]]), samples, SquaredExponential(1.0))
        tensor([[0.5744]])
    """
    r2 = _linalg.squared_distances(points, samples)
    if isinstance(kernel, SquaredExponential):
        log_mass = -0.5 * r2 / _column(kernel, r2).square()
        shares = torch.softmax(log_mass if weights is None else log_mass + weights.log()[..., None, :], -1)
        return shares @ samples
    shadow = kernel.profile(r2)[1]
    shadow = shadow if weights is None else shadow * weights[..., None, :]
    return (shadow / shadow.sum(-1, keepdim=True)) @ samples


def _log_sums(nodes: Tensor, embedding: AtomsEmbedding) -> tuple[Tensor, Tensor]:
    """log v_0 and its gradient over the atoms, block by block, rescaled to the largest term met so far."""
    h2 = _column(embedding.kernel, nodes).square()
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


def _column(kernel: Kernel, like: Tensor) -> Tensor:
    """The bandwidth, shaped to divide a (..., m, n) array."""
    bandwidth = torch.as_tensor(getattr(kernel, "bandwidth"), dtype=like.dtype, device=like.device)  # noqa: B009
    return bandwidth[..., None, None]
