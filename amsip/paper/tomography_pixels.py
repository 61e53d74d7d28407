"""Pixel spreads of latent rules, one by one and pooled, against the exact ones of the tomography posterior."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip.maps.base import NodeMap
from amsip.paper.base import Data
from amsip.paper.tomography import TABULATED, latents, problem
from amsip.problems.toys import BASE_SEED
from amsip.weights import optimal_weights

RESAMPLES = 400
CASE_SEED = BASE_SEED + 80000
TAILS = (0.025, 0.975)
QUARTILES = (0.25, 0.75)


def calibration(nodes: Float[Tensor, "c k m r"], weights: Float[Tensor, "c k m"]) -> Data:
    """How the spreads of k rules a case compare with the exact ones, pooled over the k and one by one.

    Arguments:
        nodes: Nodes of centred latent rules.
        weights: Their weights, with unit sums.

    Returns:
        `ratio`, the mean over pixels of pooled std over exact std, with an interval from resampling the rules; their
        least `correlation`; and `trace`, the median over rules of their covariance's trace over the exact one.
    """
    first = (weights[..., None, :] @ nodes)[..., 0, :]
    second = nodes.mT @ (weights[..., None] * nodes)
    single = second - first[..., :, None] * first[..., None, :]
    exact, count = problem().resolved_std, first.shape[1]
    spreads = torch.stack([pixel_std(pooled_cov(a, b)) for a, b in zip(first, second, strict=True)])
    rows = torch.randint(count, (RESAMPLES, count), generator=torch.Generator().manual_seed(BASE_SEED))
    again = torch.stack([(pixel_std(pooled_cov(first[0][r], second[0][r])) / exact).mean() for r in rows])
    trace = (single.diagonal(dim1=-2, dim2=-1).sum(-1) / problem().latent_cov.trace()).flatten()
    return {
        "ratio": (spreads / exact).mean(),
        "ratio_interval": again.quantile(again.new_tensor(TAILS)),
        "ratio_by_case": (spreads / exact).mean(-1),
        "correlation": min(correlation(row, exact) for row in spreads),
        "trace": trace.median(),
        "trace_quartiles": trace.quantile(trace.new_tensor(QUARTILES)),
        "std": spreads[0],
    }


def pooled_cov(first: Float[Tensor, "k r"], second: Float[Tensor, "k r r"]) -> Float[Tensor, "r r"]:
    """The covariance of the equal mixture of k rules, from their first and second moments.

    Example:
        >>> pooled_cov(torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1, 1))
        tensor([[1.]])
    """
    mean = first.mean(0)
    return second.mean(0) - mean[:, None] * mean


def pixel_std(cov: Float[Tensor, "r r"]) -> Float[Tensor, "pixels"]:
    """Pixel standard deviations of a latent covariance, through the lift.

    Example:
        >>> torch.allclose(pixel_std(problem().latent_cov), problem().resolved_std)
        True
    """
    lift = problem().informed.chart.root
    return ((lift @ cov) * lift).sum(-1).clamp_min(0.0).sqrt()


def correlation(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> float:
    """Pearson's.

    Example:
        >>> correlation(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 3.0, 5.0]))
        1.0
    """
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def on_edge(pixels: int) -> Bool[Tensor, "pixels"]:
    """Which pixels of a flattened square image lie on its border.

    Example:
        >>> int(on_edge(16).sum())
        12
    """
    size = int(pixels**0.5)
    mask = torch.ones(size, size, dtype=torch.bool)
    mask[1:-1, 1:-1] = False
    return mask.reshape(-1)


def sides(image: Float[Tensor, "pixels"]) -> float:
    """The mean over the first and last rows of a square image, relative to that over its first and last columns.

    Example:
        >>> round(sides(torch.tensor([3.0, 3.0, 3.0, 1.0, 0.0, 1.0, 3.0, 3.0, 3.0])), 2)
        1.29
    """
    square = image.reshape(int(len(image) ** 0.5), -1)
    return float(square[[0, -1]].mean() / square[:, [0, -1]].mean())


def unresolved_excess() -> float:
    """By how much the resolved variance and the prior's variance of the rest exceed the posterior's, on average."""
    unresolved = problem().informed.complement_cov.diagonal()
    completed = problem().resolved_std.square() + unresolved
    return float((completed / problem().posterior_cov.diagonal()).mean()) - 1.0


def reconstruction(node_map: NodeMap, seeds: Float[Tensor, "c m r"]) -> list[Data]:
    """The back-mapped mean of one emission a case against the image, beside linear estimates.

    Arguments:
        node_map: The trained map.
        seeds: Centred seeds, one set a case.
    """
    toy, known = latents()[TABULATED], problem().informed
    generator = torch.Generator().manual_seed(CASE_SEED)
    images, observed = problem().simulate(len(seeds), generator=generator)
    centre, embedding = problem().latent_posterior(observed).mean, toy.reference().embed(toy.kernel)
    with torch.no_grad():
        nodes = node_map(seeds, embedding)
    mean = (optimal_weights(nodes, embedding)[..., None, :] @ nodes)[..., 0, :] + centre
    lifted, exact = known.lift(mean[:, None])[:, 0], known.lift(centre[:, None])[:, 0]
    return [
        {
            "quadrature": correlation(image, ours),
            "linear": correlation(image, linear),
            "full": correlation(image, full),
            "apart": (ours - linear).norm() / linear.norm(),
        }
        for image, ours, linear, full in zip(images, lifted, exact, problem().posterior(observed).mean, strict=True)
    ]
