"""Support points: the point set of least energy distance, by the convex-concave procedure of Mak and Joseph (2018)."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.base import Rival, Rules, random_rows
from amsip.kernels import Kernel

ITERATIONS = 60
TINY = 1e-9


def support_points(
    pool: Float[Tensor, "n d"], kernel: Kernel, m: int, sets: int, generator: torch.Generator | None = None
) -> Rules:
    r"""Equal-weight points that minimise the energy distance to the pool, from random draws.

    $$x_i \leftarrow \Big(\sum_y \frac{1}{\|x_i - y\|}\Big)^{-1}
      \Big(\sum_y \frac{y}{\|x_i - y\|} + \frac{n}{m} \sum_{j \ne i} \frac{x_i - x_j}{\|x_i - x_j\|}\Big)$$

    The kernel is not used: its own is minus the distance.
    """
    points = pool[random_rows(pool.shape[0], m, sets, generator)]
    share = pool.shape[0] / m
    for _ in range(ITERATIONS):
        pull = 1.0 / torch.cdist(points, pool.expand(sets, *pool.shape)).clamp_min(TINY)
        push = 1.0 / torch.cdist(points, points).clamp_min(TINY)
        push = push - torch.diag_embed(push.diagonal(dim1=-2, dim2=-1))
        repelled = points * push.sum(-1, keepdim=True) - push @ points
        points = (pull @ pool + share * repelled) / pull.sum(-1, keepdim=True)
    return Rules(points)


SUPPORT_POINTS = Rival("support points", support_points, takes_kernel=False)
