"""Mean shift: one point climbing to a mode, and many that spread over the whole measure because they interact."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.kernels import Kernel, Radial, SquaredExponential, Whitened
from amsip.maps.readings import Reading, bandwidth_column, read_embedding
from amsip.references.base import Embedding
from amsip.weights import JITTER


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
        >>> from amsip import Samples, mmd2, mean_shift_weights
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
        >>> from amsip import Samples
        >>> embedding = Samples(torch.tensor([[0.0], [1.0]])).embed(SquaredExponential(2.0))
        >>> node = torch.tensor([[0.5]])
        >>> interacting_shift(node, embedding.kernel, *embedding.mean_and_grad(node)).item()
        0.0
    """
    exact = nodes.to(torch.float64)
    if isinstance(kernel, Whitened):
        chart = kernel.whitening
        inside = interacting_shift(chart.forward(exact), kernel.kernel, mean, chart.push_gradient(grad), jitter=jitter)
        return (inside @ chart.root.to(exact).mT).to(nodes)
    gram, shadow = kernel.gram_and_shadow(exact)
    right = mean.to(torch.float64)[..., None]
    weights = torch.cholesky_solve(right, _linalg.jittered_cholesky(gram, jitter))[..., 0]
    slope = grad.to(torch.float64) - kernel.weighted_grad(exact, exact, weights)
    shift = torch.cholesky_solve(slope, _linalg.jittered_cholesky(shadow, jitter)) / weights[..., None]
    return torch.where(torch.isfinite(shift), shift, torch.zeros_like(shift)).to(nodes)


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
        log_mass = -0.5 * r2 / bandwidth_column(kernel, r2).square()
        shares = torch.softmax(log_mass if weights is None else log_mass + weights.log()[..., None, :], -1)
        return shares @ samples
    shadow = kernel.profile(r2)[1]
    shadow = shadow if weights is None else shadow * weights[..., None, :]
    return (shadow / shadow.sum(-1, keepdim=True)) @ samples
