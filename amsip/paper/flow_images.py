"""The flow's posteriors as images: what rules make of their mean and spread, beside the flow's own."""

import base64
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip.maps.base import NodeMap
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.flow_cells import BESIDE, Charted
from amsip.paper.flow_maps import flow_map
from amsip.paper.flow_posterior import SEEDS, Latent, trained_flow
from amsip.paper.tomography_pixels import correlation, pooled_cov

NODES, POOL, QUICK_POOL = 32, 64, 2
LEVELS = 255
STEEP = 0.9
TAILS = (0.25, 0.75)


def arms_on_images(run: Run, charted: Charted, space: Latent) -> Data:
    """Every arm's mean and spread on the reconstructed observations, one emission at a time and pooled.

    Arguments:
        run: Quick or not.
        charted: The observations that are reconstructed.
        space: The latent.
    """
    pool = QUICK_POOL if run.quick else POOL
    seeds = charted.seeds(NODES, pool)
    maps: dict[str, NodeMap | None] = {**BESIDE}
    maps |= {f"{arms.WARM} {seed}": flow_map(run, seed).given(charted.found.image) for seed in SEEDS}
    rows, pooled = [], {}
    for arm, node_map in maps.items():
        run.report(f"flow, images of the arm {arm}")
        parts = [arms.compare(part, charted.embedding, {arm: node_map})[arm] for part in seeds]
        nodes, weights = (torch.stack([part[key] for part in parts], 1) for key in ("nodes", "weights"))
        first, second = moments(charted, nodes, weights)
        rows.append({"arm": arm, "pool": pool, "m": NODES, **against_the_flow(charted, space, first, second)})
        pooled[arm] = first, second
    return {"rows": rows, "cases": cases(charted, space, *pooled[f"{arms.WARM} {SEEDS[0]}"])}


def moments(
    charted: Charted, nodes: Float[Tensor, "q k m r"], weights: Float[Tensor, "q k m"]
) -> tuple[Float[Tensor, "q k r"], Float[Tensor, "q k r r"]]:
    """First and second moments of rules in the latent, about the mean of each observation's bank."""
    root = charted.chart.root[:, None]
    centred = nodes @ root.mT
    first = (weights[..., None, :] @ centred)[..., 0, :]
    return first, centred.mT @ (weights[..., None] * centred)


def against_the_flow(
    charted: Charted, space: Latent, first: Float[Tensor, "q k r"], second: Float[Tensor, "q k r r"]
) -> Data:
    """Errors of the mean and of the spread, relative to the flow's own.

    Returns:
        `error`, the L2 distance of a rule's mean image to the flow's over the norm of the latter; `spreads`, the same
        distance over the root of the trace of the flow's covariance; both as medians over observations and rules, and
        for the mean of all rules; `std`, the mean pooled spread of a pixel over the flow's in the latent; `trace`, the
        median of a rule's total variance over the flow's.
    """
    own, whole = flow_means(charted, space)
    scale = whole.norm(dim=-1)
    cov = charted.chart.root @ charted.chart.root.mT
    deviation = cov.diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()
    single, together = first.norm(dim=-1), first.mean(1).norm(dim=-1)
    missed = (whole - own).norm(dim=-1)
    spreads = [pixel_std(space, pooled_cov(a, b)).mean() for a, b in zip(first, second, strict=True)]
    exact = [pixel_std(space, c).mean() for c in cov]
    trace = second.diagonal(dim1=-2, dim2=-1).sum(-1) - first.square().sum(-1)
    relative = (single / scale[:, None]).flatten()
    return {
        "error": relative.median(),
        "error_quartiles": relative.quantile(relative.new_tensor(TAILS)),
        "pooled_error": (together / scale).median(),
        "whole_error": ((single.square() + missed[:, None].square()).sqrt() / scale[:, None]).median(),
        "spreads": (single / deviation[:, None]).median(),
        "pooled_spreads": (together / deviation).median(),
        "std": torch.stack([a / b for a, b in zip(spreads, exact, strict=True)]).mean(),
        "trace": (trace / deviation[:, None].square()).median(),
    }


def flow_means(charted: Charted, space: Latent) -> tuple[Float[Tensor, "q pixels"], Float[Tensor, "q pixels"]]:
    """The flow's mean image in the latent, and with all coefficients, from the bank that is integrated."""
    images = trained_flow().images
    mean = charted.found.coefficients[:, : charted.bank.shape[-2]].double().mean(-2)
    return images.images(space.coefficients(space.points(mean))), images.images(mean)


def cases(
    charted: Charted, space: Latent, first: Float[Tensor, "q k r"], second: Float[Tensor, "q k r r"]
) -> list[Data]:
    """What the figure shows of each observation, and what stands between the reconstruction and the truth."""
    trained = trained_flow()
    own, whole = flow_means(charted, space)
    coefficients = charted.found.coefficients[:, : charted.bank.shape[-2]].double()
    lift = space.basis.double().mT @ trained.images.directions.double()
    found = []
    for i, truth in enumerate(charted.found.truth.double()):
        quadrature = own[i] + first[i, 0] @ lift
        inside = trained.images.images(space.coefficients(space.points(trained.images.coefficients(truth))))
        cov = charted.chart.root[i] @ charted.chart.root[i].mT
        std, exact = pixel_std(space, pooled_cov(first[i], second[i])), pixel_std(space, cov)
        total = full_std(coefficients[i])
        panels = {
            "truth": truth,
            "flow mean": whole[i],
            "latent mean": own[i],
            "quadrature mean": quadrature,
            "quadrature std": std,
        }
        panels |= {"full std": total}
        found.append(
            {
                "panels": {name: packed(image) for name, image in panels.items()},
                "truncation": (truth - inside).square().sum() / truth.square().sum(),
                "flow": (inside - own[i]).square().sum() / truth.square().sum(),
                "method": (own[i] - quadrature).square().sum() / truth.square().sum(),
                "correlation": correlation(std, exact),
                "full_correlation": correlation(std, total),
                "full_over_latent": total.mean() / exact.mean(),
                "edges": edges(truth, std),
                "full_edges": edges(truth, total),
            }
        )
    return found


def edges(truth: Float[Tensor, "pixels"], std: Float[Tensor, "pixels"]) -> Data:
    """The mean spread on edges that no ray runs along, on those that rays do run along, and elsewhere."""
    blind, seen = edge_sets(truth, trained_flow().problem.projector.half_range)
    means = {"blind": std[blind].mean(), "seen": std[seen].mean(), "elsewhere": std[~(blind | seen)].mean()}
    return {name: float(value) for name, value in means.items()}


def edge_sets(
    image: Float[Tensor, "pixels"], half_range: float
) -> tuple[Bool[Tensor, "pixels"], Bool[Tensor, "pixels"]]:
    """The steepest tenth of the pixels: those whose edge no ray follows, and the others.

    Rays run within `half_range` degrees of the x axis. An edge is seen by the rays along it, so it is blind where its
    normal is nearer to the x axis than the rest of a right angle.

    Example:
        >>> image = torch.zeros(8, 8)
        >>> image[:, 4:] = 1.0
        >>> blind, seen = edge_sets(image.flatten(), 60.0)
        >>> bool(blind.any()), bool(seen.any())
        (True, False)
    """
    side = math.isqrt(len(image))
    down, across = torch.gradient(image.unflatten(0, (side, side)))
    size = (down.square() + across.square()).sqrt().flatten()
    steep = (size > 0) & (size >= size.quantile(STEEP))
    normal = torch.atan2(down.abs(), across.abs()).flatten().rad2deg()
    blind = steep & (normal < 90.0 - half_range)
    return blind, steep & ~blind


def pixel_std(space: Latent, cov: Float[Tensor, "r r"]) -> Float[Tensor, "pixels"]:
    """Pixel standard deviations of a covariance in the latent."""
    lift = space.basis.double().mT @ trained_flow().images.directions.double()
    return ((cov @ lift) * lift).sum(0).clamp_min(0.0).sqrt()


def full_std(coefficients: Float[Tensor, "n k"]) -> Float[Tensor, "pixels"]:
    """Pixel standard deviations of the flow's whole images, the part beyond its coefficients included."""
    trained = trained_flow()
    directions = trained.images.directions.double()
    inside = ((torch.cov(coefficients.mT) @ directions) * directions).sum(0)
    return (inside + trained.complement_variance().double()).clamp_min(0.0).sqrt()


def packed(image: Float[Tensor, "pixels"]) -> Data:
    """An image as 256 levels between its extremes, in a short string.

    Example:
        >>> unpacked(packed(torch.tensor([0.0, 0.5, 2.0, 1.0]))).round(decimals=1).flatten()
        tensor([0.0000, 0.5000, 2.0000, 1.0000], dtype=torch.float64)
    """
    low, high = float(image.min()), float(image.max())
    levels = ((image - low) * (LEVELS / max(high - low, 1e-12))).round().to(torch.uint8)
    return {"low": low, "high": high, "levels": base64.b64encode(bytes(levels.tolist())).decode()}


def unpacked(stored: Data) -> Float[Tensor, "n n"]:
    """The image that was packed, as rows."""
    levels = torch.tensor(list(base64.b64decode(stored["levels"])), dtype=torch.float64)
    side = math.isqrt(len(levels))
    return (stored["low"] + levels * ((stored["high"] - stored["low"]) / LEVELS)).unflatten(0, (side, side))
