"""The damped Gauss-Newton equations of the weight-projected discrepancy, batched over queries."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip import _linalg, derivatives
from amsip.discrepancy import loss
from amsip.references.base import Embedding
from amsip.weights import JITTER

DENSE_UNKNOWNS = 700
DENSE_ENTRIES = 40_000_000


@dataclass(frozen=True, eq=False)
class State:
    """Nodes with all that one reading of the embedding says about them; linear algebra in float64."""

    nodes: Float[Tensor, "*q m d"]
    gram: Float[Tensor, "*q m m"]
    factor: Float[Tensor, "*q m m"]
    mean: Float[Tensor, "*q m"]
    grad: Float[Tensor, "*q m d"]
    weights: Float[Tensor, "*q m"]
    loss: Float[Tensor, "*q"]

    def where(self, chosen: Bool[Tensor, "*q"], other: "State") -> "State":
        """This state where chosen, the other elsewhere."""
        fields = [getattr(self, name) for name in self.__dataclass_fields__]
        others = [getattr(other, name) for name in self.__dataclass_fields__]
        return State(*(_where(chosen, a, b) for a, b in zip(fields, others, strict=True)))


def read(nodes: Float[Tensor, "*q m d"], embedding: Embedding, jitter: float = JITTER) -> State:
    """The state at given nodes, weights optimal; a query without a Cholesky factor has an infinite loss."""
    gram = embedding.kernel.gram(nodes).to(torch.float64)
    mean, grad = (a.to(torch.float64) for a in embedding.mean_and_grad(nodes))
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, failures = torch.linalg.cholesky_ex(gram + jitter * scale * identity)
    sound = (failures == 0) & torch.isfinite(mean).all(-1) & torch.isfinite(grad).flatten(-2).all(-1)
    factor = _where(sound, factor, identity.expand_as(factor))
    ones = torch.ones_like(mean)
    weights = _linalg.minimise_quadratic(factor, mean, ones[..., None], ones[..., :1]).to(nodes)
    value = loss(gram, mean, weights.to(torch.float64))
    value = torch.where(sound & torch.isfinite(value), value, torch.full_like(value, torch.inf))
    return State(nodes, gram, factor, mean, grad, weights.to(torch.float64), value)


@dataclass(frozen=True, eq=False)
class NormalEquations:
    r"""The linear model of one step, with the weights projected out.

    $$\big(G - B^\top P B + \lambda D\big)\, \delta = g, \qquad
      G = w_i w_j\, \partial_{1}\partial_{2} k(z_i, z_j), \quad B = w_j\, \partial_2 k(z_i, z_j), \quad
      g = w_j \nabla r(z_j)$$

    with r the witness, P the inverse Gram restricted to changes of weight that sum to zero, and D the squared length
    of a move, made safe for nodes that carry no weight.

    Arguments:
        kernel: The kernel.
        state: Where the model is made.
        slope: The gradient of the witness at the nodes.
    """

    embedding: Embedding
    state: State
    slope: Float[Tensor, "*q m d"]

    @classmethod
    def at(cls, state: State, embedding: Embedding) -> "NormalEquations":
        """The model at a state."""
        nodes = state.nodes.to(torch.float64)
        fitted = embedding.kernel.weighted_grad(nodes, nodes, state.weights)
        return cls(embedding, state, state.grad - fitted)

    @property
    def gradient(self) -> Float[Tensor, "*q m d"]:
        """g: minus half the gradient of the discrepancy in the nodes."""
        return self.state.weights[..., None] * self.slope

    def metric(self) -> Float[Tensor, "*q m d"]:
        """D, one positive number a coordinate."""
        squares = self.state.weights.square()
        mass = squares + squares.mean(-1, keepdim=True)
        return mass[..., None] * self._lengths.diagonal(dim1=-2, dim2=-1)

    def direction(self, damping: Float[Tensor, "*q"], *, iterations: int = 50) -> tuple[Tensor, Tensor]:
        """The step delta, and by how much the model says it lowers the discrepancy."""
        m, d = self.slope.shape[-2:]
        metric = self.metric()
        if m * d <= DENSE_UNKNOWNS and self.slope.shape[:-2].numel() * (m * d) ** 2 <= DENSE_ENTRIES:
            step = self._solve_dense(damping, metric)
        else:
            step = self._solve_iteratively(damping, metric, iterations)
        # the model's decrease is g.step + damping |step|^2_D wherever the equations are solved
        shrunk = (damping[..., None, None] * metric * step.square()).sum((-2, -1))
        return step, (self.gradient * step).sum((-2, -1)) + shrunk

    @property
    def _lengths(self) -> Tensor:
        return derivatives.derivative_diagonal(self.embedding.kernel, self.state.nodes.to(torch.float64))

    def _solve_dense(self, damping: Tensor, metric: Tensor) -> Tensor:
        kernel, nodes, w = self.embedding.kernel, self.state.nodes.to(torch.float64), self.state.weights
        m, d = nodes.shape[-2:]
        gram = derivatives.derivative_gram(kernel, nodes)
        gram = gram * w[..., :, None, None, None] * w[..., None, None, :, None]
        cross = derivatives.gram_grad(kernel, nodes).transpose(-3, -2) * w[..., None, :, None]
        half = self._half_projection(cross.flatten(-2))
        normal = gram.flatten(-4, -3).flatten(-2) - half.mT @ half
        normal = normal + torch.diag_embed((damping[..., None, None] * metric).flatten(-2))
        factor, failures = torch.linalg.cholesky_ex(normal)
        sound = failures == 0
        factor = _where(sound, factor, torch.eye(m * d, dtype=factor.dtype, device=factor.device).expand_as(factor))
        step = torch.cholesky_solve(self.gradient.flatten(-2)[..., None], factor)[..., 0].unflatten(-1, (m, d))
        return _where(sound, step, torch.zeros_like(step))

    def _half_projection(self, columns: Tensor) -> Tensor:
        """X with X'X = C'PC, for C of one row a node."""
        ones = torch.ones_like(columns[..., :1])
        solved = torch.linalg.solve_triangular(self.state.factor, torch.cat([columns, ones], -1), upper=False)
        solved, unit = solved[..., :-1], solved[..., -1:]
        return solved - unit @ (unit.mT @ solved) / (unit.mT @ unit)

    def _product(self, v: Tensor, nodes: Tensor) -> Tensor:
        """(G - B'PB) v in the memory of one Gram."""
        kernel, w = self.embedding.kernel, self.state.weights[..., None]
        moved = derivatives.directional_sum(kernel, nodes, w * v)
        zeros = torch.zeros_like(moved[..., :1])
        change = _linalg.minimise_quadratic(self.state.factor, moved, torch.ones_like(moved)[..., None], zeros)
        back = kernel.weighted_grad(nodes, nodes, change)
        return w * (derivatives.derivative_product(kernel, nodes, w * v) - back)

    def _solve_iteratively(self, damping: Tensor, metric: Tensor, iterations: int) -> Tensor:
        """Preconditioned conjugate gradients; a query stops where its curvature vanishes."""
        nodes = self.state.nodes.to(torch.float64)
        ridge = damping[..., None, None] * metric
        inverse = 1.0 / (metric + ridge)
        step, residual = torch.zeros_like(ridge), self.gradient
        solved = inverse * residual
        search, energy = solved, _dot(residual, solved)
        target = 1e-4 * energy
        for _ in range(iterations):
            image = self._product(search, nodes) + ridge * search
            curvature = _dot(search, image)
            going = (curvature > 0) & (energy > target)
            if not bool(going.any()):
                break
            length = torch.where(going, energy / torch.where(going, curvature, 1.0), 0.0)[..., None, None]
            step, residual = step + length * search, residual - length * image
            solved = inverse * residual
            fresh = _dot(residual, solved)
            ratio = torch.where(going, fresh / torch.where(going, energy, 1.0), 0.0)[..., None, None]
            search, energy = solved + ratio * search, torch.where(going, fresh, 0.0)
        return step


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-2, -1))


def _where(chosen: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(chosen.reshape(*chosen.shape, *(1,) * (a.ndim - chosen.ndim)), a, b)
