"""The per-query optimum: a long gradient descent on the nodes, the limit that one-pass maps are measured against."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.maps.levenberg import NormalEquations, read
from amsip.references.base import Embedding
from amsip.weights import JITTER

MOMENTUM, INERTIA, TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class AdamDescent:
    r"""Moves the nodes of each query by Adam on the discrepancy with weights solved anew at every step.

    $$J(z) = \min_{1^\top w = 1} \mathrm{MMD}^2(z, w), \qquad
      \nabla_{z_j} J = 2 w_j \Big( \sum_l w_l \nabla_1 k(z_j, z_l) - \nabla \mu(z_j) \Big)$$

    The paper's "finetuned" arm. The gradient needs no derivative of the weights: they minimise J, so what their motion
    adds vanishes, up to the ridge. The best nodes met are kept, so no query ends above its start.

    Arguments:
        steps: The number of steps.
        rate: The step size, in the nodes' own units.
        jitter: The ridge of the weight solve.

    Example:
        >>> from amsip import Samples, SquaredExponential, mmd2, optimal_weights
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> embedding = Samples(draws).embed(SquaredExponential(1.0))
        >>> nodes = AdamDescent(steps=50)(draws[:8], embedding)
        >>> scores = [mmd2(z, optimal_weights(z, embedding), embedding).item() for z in (draws[:8], nodes)]
        >>> scores[1] < 0.2 * scores[0]
        True
    """

    steps: int = 150
    rate: float = 0.05
    jitter: float = JITTER

    def __post_init__(self) -> None:
        _checks.at_least("steps", self.steps, 0)
        _checks.positive("rate", self.rate)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The best nodes met."""
        with torch.no_grad():
            state = read(nodes, embedding, self.jitter)
            best, least = state.nodes, state.loss
            first = torch.zeros_like(state.grad)
            second = torch.zeros_like(state.grad)
            for step in range(1, self.steps + 1):
                gradient = (-2.0 * NormalEquations.at(state, embedding).gradient).nan_to_num(0.0, 0.0, 0.0)
                first = torch.lerp(gradient, first, MOMENTUM)
                second = torch.lerp(gradient.square(), second, INERTIA)
                scale = (second / (1.0 - INERTIA**step)).sqrt() + TINY
                move = self.rate / (1.0 - MOMENTUM**step) * first / scale
                state = read(state.nodes - move.to(nodes), embedding, self.jitter)
                lower = state.loss < least
                best = torch.where(lower[..., None, None], state.nodes, best)
                least = torch.where(lower, state.loss, least)
            return best
