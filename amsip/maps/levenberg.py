"""Damped linear models of the weight-projected discrepancy, batched over queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip import _linalg, derivatives
from amsip.discrepancy import loss
from amsip.maps.curvature import mean_hessian
from amsip.references.base import Embedding
from amsip.weights import JITTER

DENSE_UNKNOWNS = 700
DENSE_ENTRIES = 16_000_000
STIFFENINGS, STIFFENING, STIFF = 12, 4.0, 1e-4
CONJUGATE_STEPS, CONJUGATE_TOLERANCE = 50, 1e-4


@dataclass(frozen=True, eq=False)
class State:
    """Nodes with all that one reading of the embedding says about them, in float64."""

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
    return read_all([nodes], embedding, jitter)[0]


def read_all(candidates: Sequence[Float[Tensor, "*q m d"]], embedding: Embedding, jitter: float) -> list[State]:
    """The states at several sets of nodes, by one reading of the embedding."""
    mean, grad = embedding.mean_and_grad(torch.cat(list(candidates), -2).to(torch.float64))
    m = candidates[0].shape[-2]
    parts = zip(candidates, mean.split(m, -1), grad.split(m, -2), strict=True)
    return [_state(nodes, mu, slope, embedding, jitter) for nodes, mu, slope in parts]


def _state(nodes: Tensor, mean: Tensor, grad: Tensor, embedding: Embedding, jitter: float) -> State:
    gram = embedding.kernel.gram(nodes.to(torch.float64))
    factor, failures = torch.linalg.cholesky_ex(_linalg.ridged(gram, jitter))
    sound = (failures == 0) & torch.isfinite(mean).all(-1) & torch.isfinite(grad).flatten(-2).all(-1)
    factor = _where(sound, factor, _identity_like(factor))
    ones = torch.ones_like(mean)
    weights = _linalg.minimise_quadratic(factor, mean, ones[..., None], ones[..., :1])
    # in the nodes' own precision, for that is how the weights will be handed out
    weights = weights.to(nodes).to(torch.float64)
    value = loss(gram, mean, weights)
    value = torch.where(sound & torch.isfinite(value), value, torch.full_like(value, torch.inf))
    return State(nodes, gram, factor, mean, grad, weights, value)


@dataclass(frozen=True, eq=False)
class NormalEquations:
    r"""The quadratic model of half the discrepancy around a state, with the weights projected out.

    $$\big(G - B^\top P B + \lambda D\big)\, \delta = g, \qquad
      G = w_i w_j\, \nabla_1 \nabla_2 k(z_i, z_j), \quad B = w_j\, \nabla_2 k(z_i, z_j), \quad
      g = w_j \nabla r(z_j)$$

    with r the witness, P the inverse Gram restricted to changes of weight that sum to zero, and D the squared length
    of a move of each node alone, kept positive where a node carries no weight. These are Gauss and Newton's equations
    in Kaufman's form. Newton's own add the block-diagonal $S = -w_j \nabla^2 r(z_j)$ to G and subtract
    $\nabla r(z_j)$ from the diagonal of B.

    Arguments:
        embedding: The reference, as seen by the kernel.
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
        return cls(embedding, state, state.grad - embedding.kernel.weighted_grad(nodes, nodes, state.weights))

    @property
    def gradient(self) -> Float[Tensor, "*q m d"]:
        """g: minus half the gradient of the discrepancy in the nodes."""
        return self.state.weights[..., None] * self.slope

    def direction(
        self, damping: Float[Tensor, "*q"], *, newton: bool = False
    ) -> tuple[Float[Tensor, "*q m d"], Float[Tensor, "*q"], Float[Tensor, "*q"]]:
        """The step, by how much the model says it lowers the discrepancy, and the damping it took to be convex."""
        if self._dense:
            step, damping = self._solve_dense(damping, newton)
        else:
            step = self._solve_iteratively(damping, newton)
        ridge = damping[..., None, None] * self.metric
        image = self._product(step, newton) if not self._dense else None
        bent = _dot(step, image) if image is not None else _dot(step, self.gradient - ridge * step)
        return step, 2.0 * _dot(self.gradient, step) - bent, damping

    @cached_property
    def metric(self) -> Float[Tensor, "*q m d"]:
        """D, one positive number a coordinate."""
        mass = self.state.weights.square() + 1.0 / self.slope.shape[-2] ** 2
        lengths = derivatives.derivative_diagonal(self.embedding.kernel, self._nodes)
        # one length for all coordinates of a node, so that steps turn with the coordinates
        isotropic = lengths.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        return mass[..., None] * isotropic.expand(*isotropic.shape[:-1], lengths.shape[-1])

    @property
    def _nodes(self) -> Tensor:
        return self.state.nodes.to(torch.float64)

    @property
    def _dense(self) -> bool:
        unknowns = self.slope.shape[-2:].numel()
        return unknowns <= DENSE_UNKNOWNS and self.slope.shape[:-2].numel() * unknowns**2 <= DENSE_ENTRIES

    @cached_property
    def _second(self) -> Tensor:
        """S, the curvature of the witness that the Gauss-Newton model leaves out."""
        nodes, w = self._nodes, self.state.weights
        bend = mean_hessian(self.embedding, nodes) - derivatives.weighted_hessian(
            self.embedding.kernel, nodes, nodes, w
        )
        return -w[..., None, None] * bend

    @cached_property
    def _moved_gram(self) -> Tensor:
        return derivatives.derivative_gram(self.embedding.kernel, self._nodes, self.state.weights)

    @cached_property
    def _moved_cross(self) -> Tensor:
        grads = derivatives.gram_grad(self.embedding.kernel, self._nodes)
        return grads.transpose(-3, -2) * self.state.weights[..., None, :, None]

    def _matrix(self, newton: bool) -> Tensor:
        gram, cross = self._moved_gram, self._moved_cross
        if newton:
            gram, cross = gram.clone(), cross.clone()
            gram.diagonal(dim1=-4, dim2=-2).add_(self._second.movedim(-3, -1))
            cross.diagonal(dim1=-3, dim2=-2).sub_(self.slope.mT)
        half, flat = self._half_projection(cross.flatten(-2)), gram.flatten(-4, -3).flatten(-2)
        rows, size = half.shape[-2:]
        product = torch.baddbmm(
            flat.reshape(-1, size, size), half.mT.reshape(-1, size, rows), half.reshape(-1, rows, size), alpha=-1.0
        )
        return product.reshape(flat.shape)

    def _half_projection(self, columns: Tensor) -> Tensor:
        """X with X'X = C'PC, for C of one row a node."""
        ones = torch.ones_like(columns[..., :1])
        solved = torch.linalg.solve_triangular(self.state.factor, torch.cat([columns, ones], -1), upper=False)
        solved, unit = solved[..., :-1], solved[..., -1:]
        return solved - unit @ (unit.mT @ solved) / (unit.mT @ unit)

    def _solve_dense(self, damping: Tensor, newton: bool) -> tuple[Tensor, Tensor]:
        ridge = self.metric.flatten(-2)
        matrix, gradient = self._matrix(newton), self.gradient.flatten(-2)
        factor, damping, convex = _convex_factor(matrix, ridge, damping)
        step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
        step = torch.where(convex[..., None], step, torch.zeros_like(step))
        return step.unflatten(-1, self.slope.shape[-2:]), damping

    def _product(self, v: Tensor, newton: bool) -> Tensor:
        """The undamped matrix times v, in the memory of one Gram."""
        kernel, nodes, w = self.embedding.kernel, self._nodes, self.state.weights[..., None]
        moved = derivatives.directional_sum(kernel, nodes, w * v)
        if newton:
            moved = moved - (self.slope * v).sum(-1)
        zeros = torch.zeros_like(moved[..., :1])
        change = _linalg.minimise_quadratic(self.state.factor, moved, torch.ones_like(moved)[..., None], zeros)
        back = w * kernel.weighted_grad(nodes, nodes, change)
        image = w * derivatives.derivative_product(kernel, nodes, w * v) - back
        if newton:
            image = image + self.slope * change[..., None] + (self._second @ v[..., None])[..., 0]
        return image

    def _solve_iteratively(self, damping: Tensor, newton: bool) -> Tensor:
        """Preconditioned conjugate gradients; a query stops where its curvature is not positive."""
        ridge = damping[..., None, None] * self.metric
        inverse = 1.0 / (self.metric + ridge)
        residual = self.gradient
        search = solved = inverse * residual
        energy = _dot(residual, solved)
        target = CONJUGATE_TOLERANCE * energy
        step = torch.zeros_like(search)
        for round_ in range(CONJUGATE_STEPS):
            image = self._product(search, newton) + ridge * search
            curvature = _dot(search, image)
            if round_ == 0:
                step = torch.where((curvature > 0)[..., None, None], step, search)
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


def _convex_factor(matrix: Tensor, ridge: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Cholesky factor at the least damping, of a few tried, that makes each query's model convex."""
    queries, size = damping.shape, ridge.shape[-1]
    matrix, ridge, damping = matrix.reshape(-1, size, size), ridge.reshape(-1, size), damping.reshape(-1)
    factor, failures = torch.linalg.cholesky_ex(_with_diagonal(matrix, damping[:, None] * ridge))
    failed = failures.nonzero()[:, 0]
    for _ in range(STIFFENINGS):
        if not len(failed):
            break
        damping = damping.index_copy(0, failed, damping[failed].clamp_min(STIFF) * STIFFENING)
        ridged = _with_diagonal(matrix[failed], damping[failed, None] * ridge[failed])
        again, failures = torch.linalg.cholesky_ex(ridged)
        factor = factor.index_copy(0, failed, again)
        failed = failed[failures > 0]
    if len(failed):
        factor = factor.index_copy(0, failed, _identity_like(factor)[failed])
    convex = torch.ones_like(damping, dtype=torch.bool).index_fill(0, failed, False)
    return factor.reshape(*queries, size, size), damping.reshape(queries), convex.reshape(queries)


def _with_diagonal(matrix: Tensor, added: Tensor) -> Tensor:
    """The matrix plus a diagonal one, in one pass."""
    total = matrix.clone()
    total.diagonal(dim1=-2, dim2=-1).add_(added)
    return total


def _identity_like(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-2, -1))


def _where(chosen: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(chosen.reshape((*chosen.shape, *(1,) * (a.ndim - chosen.ndim))), a, b)
