"""Mean-shift interacting particles: the data-driven iteration of Belhadji et al., run anew for each posterior."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.base import Rival, Rules, random_rows
from amsip.discrepancy import loss
from amsip.kernels import Kernel
from amsip.maps.meanshift import interacting_shift
from amsip.references.samples import Samples
from amsip.weights import optimal_weights, unit_sum_weights

ITERATIONS = 200
STEP = 0.5


def interacting_particles(
    pool: Float[Tensor, "n d"], kernel: Kernel, m: int, sets: int, generator: torch.Generator | None = None
) -> Rules:
    r"""Random draws moved by half the way to Psi again and again, inside the box of the draws.

    $$z \leftarrow \tfrac12 z + \tfrac12 \Psi(z), \qquad \Psi(z)_i = (K^{-1} V_1)_i / (K^{-1} v_0)_i$$

    Equation (6) of the paper, in its general form for kernels other than one Gaussian. The iteration can climb: of all
    the nodes that it met, those of least discrepancy are returned.
    """
    embedding = Samples(pool).embed(kernel)
    nodes = pool[random_rows(pool.shape[0], m, sets, generator)]
    lowest, highest = pool.amin(0), pool.amax(0)
    best, least = nodes, torch.full((sets,), torch.inf, dtype=pool.dtype)
    for _ in range(ITERATIONS):
        mean, grad = embedding.mean_and_grad(nodes)
        gram = kernel.gram(nodes)
        reached = loss(gram, mean, unit_sum_weights(gram, mean))
        better = reached < least
        best, least = torch.where(better[:, None, None], nodes, best), torch.where(better, reached, least)
        nodes = (nodes + STEP * interacting_shift(nodes, kernel, mean, grad)).clamp(lowest, highest)
    return Rules(best, optimal_weights(best, embedding))


PARTICLES = Rival("MSIP", interacting_particles)
