"""One list of instances for every abstract type; `test_contracts.py` puts each of them through the same promises.

A case builds its instance from data of shape `(*q, n, d)`, so that a batch can be compared with its single queries.
A new kernel, reference, embedding or map gets a line here; a test fails until it has one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from amsip import Gaussian, Mixture, Samples, Whitening
from amsip.kernels import InverseMultiquadric, Matern, Octaves, Polynomial, SquaredExponential, Whitened
from amsip.maps.attention import AttentionMap
from amsip.maps.chain import Chain
from amsip.maps.conditioned import ConditionedMap
from amsip.maps.descent import Descent
from amsip.maps.meanshift import MeanShift
from amsip.maps.optimum import AdamDescent
from amsip.maps.svgd import Svgd
from amsip.maps.unrolled import UnrolledMap
from amsip.references.projected import Projected
from amsip.references.sampler import Sampler
from amsip.subspace import Subspace


@dataclass(frozen=True)
class Case:
    """How to build one instance, and which classes it answers for.

    Arguments:
        name: What the test reports call it.
        build: From data `(*q, n, d)` to the instance.
        covers: Names of the concrete classes it puts through the promises.
    """

    name: str
    build: Callable[[Tensor], object]
    covers: tuple[str, ...]


def mean_and_cov(data: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of the data, the covariance made positive definite."""
    centred = data - data.mean(-2, keepdim=True)
    cov = centred.mT @ centred / data.shape[-2] + torch.eye(data.shape[-1], dtype=data.dtype)
    return data.mean(-2), 0.5 * (cov + cov.mT)


def chart(data: Tensor) -> Whitening:
    """One chart a query."""
    return Whitening.of_moments(*mean_and_cov(data))


def bandwidth(data: Tensor) -> Tensor:
    """One bandwidth a query."""
    return 0.5 + data[..., 0, 0].abs()


def mixture(data: Tensor) -> Mixture:
    """Two components a query."""
    _, cov = mean_and_cov(data)
    return Mixture(data[..., :2, 0].abs() + 0.1, data[..., :2, :], torch.stack([cov, 2.0 * cov], -3))


def weighted(data: Tensor) -> Samples:
    """Draws of unequal weight."""
    return Samples(data, data[..., 0].abs() + 0.1)


def sampler(data: Tensor) -> Sampler:
    """A callable around a Gaussian of fixed bank."""
    source = Gaussian(*mean_and_cov(data))
    single = Gaussian(torch.zeros(data.shape[-1], dtype=data.dtype), torch.eye(data.shape[-1], dtype=data.dtype))

    def draw(n: int, generator: torch.Generator | None) -> Tensor:
        # the same noise for every query, so that a batch is the loop of its singles
        return source.mean[..., None, :] + single.sample(n, generator=generator) @ torch.linalg.cholesky(source.cov).mT

    return Sampler(draw, data.shape[-1], bank=64, generator=torch.Generator().manual_seed(0))


def projected(data: Tensor) -> Projected:
    """Weighted draws through two of their coordinates."""
    identity = torch.eye(data.shape[-1], dtype=data.dtype)
    subspace = Subspace(0.0 * identity[0], identity, identity[:, :2], torch.ones_like(identity[0]))
    return Projected(weighted(data), subspace)


KERNELS = [
    Case("squared exponential", lambda data: SquaredExponential(0.8), ("SquaredExponential",)),
    Case("squared exponential a query", lambda data: SquaredExponential(bandwidth(data)), ("SquaredExponential",)),
    Case("octaves", lambda data: Octaves(bandwidth(data), 3, (1.0, 3.0, 2.0)), ("Octaves",)),
    Case("matern 3/2", lambda data: Matern(bandwidth(data), 1.5), ("Matern",)),
    Case("matern 5/2", lambda data: Matern(0.9, 2.5), ("Matern",)),
    Case("inverse multiquadric", lambda data: InverseMultiquadric(bandwidth(data)), ("InverseMultiquadric",)),
    Case("polynomial 1", lambda data: Polynomial(1, 2.0), ("Polynomial",)),
    Case("polynomial 2", lambda data: Polynomial(2, 2.0), ("Polynomial",)),
    Case("sum", lambda data: Octaves(bandwidth(data), 2) + 0.5 * Polynomial(2, 3.0), ("Sum",)),
    Case("whitened", lambda data: Whitened(Octaves(1.0, 2) + Polynomial(2, 3.0), chart(data)), ("Whitened",)),
]

REFERENCES = [
    Case("samples", Samples, ("Samples",)),
    Case("weighted samples", weighted, ("Samples",)),
    Case("gaussian", lambda data: Gaussian(*mean_and_cov(data)), ("Gaussian",)),
    Case("mixture", mixture, ("Mixture",)),
    Case("sampler", sampler, ("Sampler",)),
    Case("projected", projected, ("Projected",)),
]

EMBEDDINGS = [
    Case("atoms", lambda data: weighted(data).embed(Octaves(bandwidth(data), 3)), ("AtomsEmbedding",)),
    Case("smoothed mixture", lambda data: mixture(data).embed(SquaredExponential(0.9)), ("SmoothedMixtureEmbedding",)),
    Case("moments", lambda data: weighted(data).embed(Polynomial(2, 2.0)), ("MomentEmbedding",)),
    Case("sum", lambda data: mixture(data).embed(Octaves(0.7, 2) + Polynomial(2, 2.0)), ("SumEmbedding",)),
    Case(
        "whitened",
        lambda data: weighted(data).embed(Whitened(Octaves(1.0, 2) + Polynomial(2, 3.0), chart(data))),
        ("WhitenedEmbedding",),
    ),
]


def moving(net: nn.Module) -> nn.Module:
    """A network of fixed random parameters, so that it moves its nodes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return net


def conditioned(data: Tensor) -> object:
    """The conditioned network with an observation a query in place."""
    net = ConditionedMap(data.shape[-1], (5,), width=16, blocks=1, heads=2, generator=torch.Generator().manual_seed(0))
    return moving(net).given(data[..., :5, 0].double())


MAPS = [
    Case(
        "attention",
        lambda data: moving(AttentionMap(data.shape[-1], 16, 1, 2, generator=torch.Generator().manual_seed(0))),
        ("AttentionMap",),
    ),
    Case("conditioned", conditioned, ("ConditionedMap", "GivenMap")),
    Case("unrolled", lambda data: moving(UnrolledMap(layers=2, width=16, heads=2)).to(data.dtype), ("UnrolledMap",)),
    Case("mean shift", lambda data: MeanShift(steps=2), ("MeanShift",)),
    Case("chain", lambda data: Chain((MeanShift(steps=1), Descent(steps=1))), ("Chain",)),
    Case("descent", lambda data: Descent(steps=2), ("Descent",)),
    Case("adam", lambda data: AdamDescent(steps=2), ("AdamDescent",)),
    Case("svgd", lambda data: Svgd(Gaussian(*mean_and_cov(data)).score, bandwidth=1.0, steps=2), ("Svgd",)),
]
