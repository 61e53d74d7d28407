"""What a map is asked to make small; a loss is any callable (nodes, task) -> scalar."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import discrepancy
from amsip.maps.base import NodeMap
from amsip.maps.meanshift import MeanShift
from amsip.references.base import Embedding
from amsip.training.tasks import Task
from amsip.weights import JITTER, uniform_weights, unit_sum_weights

Loss = Callable[[Float[Tensor, "*q m d"], Task], Float[Tensor, ""]]

SMALLEST_RATIO = 1e-12
ONE_STEP = MeanShift(steps=1)


@dataclass(frozen=True)
class SquaredDiscrepancy:
    r"""MMD regression, the objective of the paper.

    $$\mathcal L(\theta) = \mathbb E\, \mathrm{MMD}^2\Big(\sum_j \hat w_j \delta_{\hat z_j}, \rho\Big)$$

    Equation (10) of the paper. The gradient reaches the nodes alone: at optimal weights the derivative through the
    weights vanishes (the envelope theorem), up to the ridge.

    Arguments:
        through_weights: Differentiate the weight solve as well: slower, and equal up to the ridge.
        jitter: The ridge of the weight solve.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
        >>> task = Task(draws[:8], Samples(draws).embed(SquaredExponential(1.0)))
        >>> SquaredDiscrepancy()(task.seeds, task).shape
        torch.Size([])
    """

    through_weights: bool = False
    jitter: float = JITTER

    def __call__(self, nodes: Float[Tensor, "*q m d"], task: Task) -> Float[Tensor, ""]:
        return emission_mmd2(nodes, task.embedding, through_weights=self.through_weights, jitter=self.jitter).mean()


@dataclass(frozen=True)
class LogRatio:
    r"""The mean logarithm of the discrepancy relative to the seeds', so that large M counts as much as small.

    $$\mathcal L(\theta) = \mathbb E \log \frac{\mathrm{MMD}^2(\hat z)}{\mathrm{MMD}^2(z^0)}$$

    The ratio is kept above 1e-12, where rounding takes over and the gradient is zero.

    Arguments:
        reweighted: Compare with the reweighted seeds instead of the equal-weight ones.
        through_weights: Differentiate the weight solve as well.
        jitter: The ridge of the weight solve.
        steepest: The longest gradient that reaches the nodes of one query, per standard deviation of its posterior:
            a nearly singular Gram has a gradient of any length.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> draws = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
        >>> task = Task(draws[:8], Samples(draws).embed(SquaredExponential(1.0)))
        >>> LogRatio(reweighted=True)(task.seeds, task).item()
        0.0
    """

    reweighted: bool = False
    through_weights: bool = False
    jitter: float = JITTER
    steepest: float = math.inf

    def __call__(self, nodes: Float[Tensor, "*q m d"], task: Task) -> Float[Tensor, ""]:
        nodes = limit_gradient(nodes, task.embedding, self.steepest)
        scores = emission_mmd2(nodes, task.embedding, through_weights=self.through_weights, jitter=self.jitter)
        with torch.no_grad():
            baseline = self._baseline(task).clamp_min(torch.finfo(scores.dtype).tiny)
        return (scores / baseline).clamp_min(SMALLEST_RATIO).log().mean()

    def _baseline(self, task: Task) -> Tensor:
        if self.reweighted:
            return emission_mmd2(task.seeds, task.embedding, jitter=self.jitter)
        return discrepancy.mmd2(task.seeds, uniform_weights(task.seeds), task.embedding)


@dataclass(frozen=True)
class Distillation:
    r"""Plain distillation: nodes are regressed onto their own image under a teacher, held fixed.

    $$\ell(z) = \tfrac{1}{M d} \big\| z - \mathrm{sg}[\bar\Psi(z)] \big\|^2$$

    Appendix A.3 of the paper; with the interacting mean shift as teacher it vanishes exactly where the discrepancy
    is stationary under the mean-shift weight rule (proposition 3).

    Arguments:
        teacher: A map that improves nodes; by default one damped step of the interacting mean shift.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> task = Task(torch.ones(4, 2), Samples(torch.zeros(1, 2)).embed(SquaredExponential(1.0)))
        >>> Distillation(lambda nodes, embedding: nodes / 2)(task.seeds, task)
        tensor(0.2500)
    """

    teacher: NodeMap = ONE_STEP

    def __call__(self, nodes: Float[Tensor, "*q m d"], task: Task) -> Float[Tensor, ""]:
        with torch.no_grad():
            target = self.teacher(nodes.detach(), task.embedding)
        return (nodes - target).square().mean()


def limit_gradient(nodes: Float[Tensor, "*q m d"], embedding: Embedding, longest: float) -> Float[Tensor, "*q m d"]:
    """The same nodes; going back, each query's share of a mean over queries is cut to a length.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> z = torch.zeros(2, 1, 1, requires_grad=True)
        >>> embedding = Samples(torch.tensor([[-1.0], [1.0]])).embed(SquaredExponential(1.0))
        >>> (limit_gradient(z, embedding, 3.0) * torch.tensor([8.0, 1.0])[:, None, None]).mean().backward()
        >>> z.grad.flatten()
        tensor([1.5000, 0.5000])
    """
    if not nodes.requires_grad or math.isinf(longest):
        return nodes
    spread = embedding.moments[1].diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(0.0).sqrt()
    scale = spread[..., None, None].to(nodes) * nodes.shape[:-2].numel()

    def cut(gradient: Tensor) -> Tensor:
        length = (gradient * scale).flatten(-2).norm(dim=-1)[..., None, None]
        return torch.where(torch.isfinite(length), gradient * (longest / length.clamp_min(longest)), 0.0)

    alias = nodes.view_as(nodes)
    alias.register_hook(cut)
    return alias


def emission_mmd2(
    nodes: Float[Tensor, "*q m d"], embedding: Embedding, *, through_weights: bool = False, jitter: float = JITTER
) -> Float[Tensor, "*q"]:
    """The squared discrepancy of nodes under their optimal weights in float64, differentiable in the nodes."""
    exact = nodes.to(torch.float64)
    gram, mean = embedding.kernel.gram(exact), embedding.mean(exact)
    with torch.set_grad_enabled(through_weights and torch.is_grad_enabled()):
        weights = unit_sum_weights(gram, mean, jitter=jitter)
    return discrepancy.loss(gram, mean, weights) + embedding.energy.to(exact)
