"""What hypothesis draws: sizes, precisions, kernels and data, all small and all reproducible from one integer."""

import random

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

from amsip import Gaussian, InverseMultiquadric, Matern, Mixture, Octaves, Polynomial, Samples, SquaredExponential

fewest = settings(max_examples=10)
few = settings(max_examples=20)
some = settings(max_examples=40)

sizes = st.integers(1, 7)
dims = st.integers(1, 4)
rng_seeds = st.integers(0, 2**32 - 1)
bandwidths = st.floats(0.2, 5.0)
batches = st.sampled_from([(), (1,), (3,), (2, 2)])


def built(make, *arguments):
    """make(*arguments), with Python's random state put back: the shape checker samples from it, hypothesis minds."""
    state = random.getstate()
    try:
        return make(*arguments)
    finally:
        random.setstate(state)


@st.composite
def clouds(draw, low=1, high=11, dim=None, batch=(), scale=1.0):
    """Normal points of unit spread around a centre of order one, `(*batch, n, d)` in float64."""
    rng = np.random.default_rng(draw(rng_seeds))
    n, d = draw(st.integers(low, high)), draw(dims) if dim is None else dim
    return torch.as_tensor(scale * (rng.normal(size=(*batch, n, d)) + rng.normal(size=(*batch, 1, d))))


@st.composite
def shares(draw, count):
    """Positive weights that sum to one."""
    raw = torch.as_tensor(np.random.default_rng(draw(rng_seeds)).uniform(0.1, 1.0, size=count))
    return raw / raw.sum()


RADIAL = (
    SquaredExponential,
    lambda h: Octaves(h, 1),
    lambda h: Octaves(h, 4),
    lambda h: Octaves(h, 3, (1.0, 2.0, 0.5)),
    lambda h: Matern(h, 1.5),
    lambda h: Matern(h, 2.5),
    InverseMultiquadric,
)
COMPOSITE = (
    lambda radial, polynomial: radial,
    lambda radial, polynomial: polynomial,
    lambda radial, polynomial: radial + 0.7 * polynomial,
    lambda radial, polynomial: Matern(1.0, 0.5) + radial,
)


@st.composite
def radial_kernels(draw):
    """Any radial kernel with a shadow."""
    return built(draw(st.sampled_from(RADIAL)), draw(bandwidths))


@st.composite
def kernels(draw):
    """Any kernel: radial, polynomial, or a sum."""
    radial = draw(radial_kernels())
    polynomial = built(Polynomial, draw(st.sampled_from([1, 2])), draw(st.floats(0.5, 4.0)))
    return built(draw(st.sampled_from(COMPOSITE)), radial, polynomial)


@st.composite
def covariances(draw, dim):
    """A well-conditioned covariance."""
    a = np.random.default_rng(draw(rng_seeds)).normal(size=(dim, dim))
    return torch.as_tensor(a @ a.T / dim + 0.2 * np.eye(dim))


@st.composite
def gaussians(draw, dim=None):
    """One Gaussian."""
    d = draw(dims) if dim is None else dim
    mean = torch.as_tensor(np.random.default_rng(draw(rng_seeds)).normal(size=d))
    return built(Gaussian, mean, draw(covariances(d)))


@st.composite
def mixtures(draw, dim=None):
    """A mixture of one to three Gaussians."""
    d = draw(dims) if dim is None else dim
    count = draw(st.integers(1, 3))
    means = torch.as_tensor(2.0 * np.random.default_rng(draw(rng_seeds)).normal(size=(count, d)))
    return built(Mixture, draw(shares(count)), means, torch.stack([draw(covariances(d)) for _ in range(count)]))


@st.composite
def samples(draw, low=1, high=23, dim=None):
    """Draws, weighted or not."""
    atoms = draw(clouds(low, high, dim))
    return built(Samples, atoms, draw(shares(atoms.shape[0])) if draw(st.booleans()) else None)
