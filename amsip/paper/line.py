"""The reference on a line that the two explanatory figures share."""

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.paper.base import Data, Run
from amsip.paper.style import SOFT
from amsip.problems.toys import Toy
from amsip.references.base import Embedding
from amsip.references.mixture import Mixture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# nothing is said about this reference in the paper: three bumps, so that few nodes leave something to see
SHARES, MEANS, STDS = (0.5, 0.3, 0.2), (-2.0, 0.8, 3.4), (0.7, 0.5, 0.9)
M = 7
SETS, QUICK_SETS = 256, 16
BOX = (-5.5, 7.0)
POINTS = 241


@lru_cache(maxsize=1)
def line_toy() -> Toy:
    """Three bumps on a line, at the bandwidth that the rule of the paper's table gives.

    Example:
        >>> line_toy().dim, line_toy().reference().moments()[0].shape
        (1, torch.Size([1]))
    """
    means = torch.tensor(MEANS, dtype=torch.float64)[:, None]
    covs = torch.tensor(STDS, dtype=torch.float64).square()[:, None, None]
    target = Mixture(torch.tensor(SHARES, dtype=torch.float64), means, covs)

    def draw(n: int, generator: torch.Generator) -> Tensor:
        return target.sample(n, generator=generator)

    return Toy("line", target, draw)


def line_embedding() -> Embedding:
    """Its exact kernel mean.

    Example:
        >>> bool(0.0 < line_embedding().energy < 1.0)
        True
    """
    return line_toy().reference().embed(line_toy().kernel)


def line_seeds(run: Run) -> Float[Tensor, "r m 1"]:
    """The seed sets."""
    return line_toy().seed_sets(M, QUICK_SETS if run.quick else SETS)


def plain_set(weights: Float[Tensor, "r m"]) -> int:
    """The set that is drawn: the first whose weights are all positive, so that stems can be compared by eye.

    Example:
        >>> plain_set(torch.tensor([[2.0, -1.0], [0.5, 0.5], [0.7, 0.3]]))
        1
    """
    return int((weights > 0).all(-1).double().argmax())


def line_density(points: Float[Tensor, "*q"]) -> Float[Tensor, "*q"]:
    """The density.

    Example:
        >>> x = torch.linspace(-12.0, 14.0, 2001, dtype=torch.float64)
        >>> round(torch.trapezoid(line_density(x), x).item(), 9)
        1.0
    """
    target = line_toy().reference()
    assert isinstance(target, Mixture)
    return target.log_prob(points[..., None]).exp()


def drawn_points() -> Float[Tensor, "n"]:
    """Where curves are drawn.

    Example:
        >>> len(drawn_points()) == POINTS
        True
    """
    return torch.linspace(*BOX, POINTS, dtype=torch.float64)


def density_with_nodes(axes: "Axes", data: Data, nodes: list[float], weights: list[float], colour: str) -> None:
    """The density as a pale hill, the nodes as stems as high as their weight, equal weights at half its height.

    Arguments:
        axes: Where.
        data: With `x` and `density`.
        nodes: Their places.
        weights: Theirs.
        colour: Of the stems.
    """
    axes.fill_between(data["x"], data["density"], color=SOFT, alpha=0.55, linewidth=0)
    unit = 0.5 * max(data["density"]) * len(nodes)
    heights = [unit * weight for weight in weights]
    axes.vlines(nodes, 0.0, heights, color=colour, linewidth=1.4)
    axes.plot(nodes, heights, "o", color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.6)
    axes.axhline(0.0, color="#666666", linewidth=0.7)
    axes.set_xlim(BOX)
