import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from strategies import few, mixtures, rng_seeds

from amsip import Mixture, Whitening


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


@few
@given(mixtures(), rng_seeds)
def test_log_density_is_the_textbook_one_and_the_score_its_gradient(reference, rng_seed):
    x = normal(2, reference.dim, rng_seed=rng_seed)
    parts = [part.numpy() for part in (reference.shares, reference.means, reference.covs)]
    assert np.allclose(reference.log_prob(x), [oracles.mixture_log_density(p, *parts) for p in x.numpy()])
    for point, score in zip(x.numpy(), reference.score(x).numpy(), strict=True):
        slope = oracles.gradient(lambda p: oracles.mixture_log_density(p, *parts), point)
        assert np.allclose(score, slope, rtol=1e-5, atol=1e-6)


@few
@given(mixtures(2))
def test_moments_are_integrals(reference):
    parts = [part.numpy() for part in (reference.shares, reference.means, reference.covs)]
    mean, cov = (moment.numpy() for moment in reference.moments())
    assert np.allclose(mean, [oracles.mixture_expectation(lambda x, i=i: x[i], *parts, 4) for i in range(2)])
    expected = oracles.mixture_expectation(lambda x: (x[0] - mean[0]) * (x[1] - mean[1]), *parts, 4)
    assert np.isclose(cov[0, 1], expected, rtol=1e-9, atol=1e-9)


@few
@given(mixtures(3), rng_seeds)
def test_whitening_moves_density_score_and_moments_together(reference, rng_seed):
    chart = Whitening.of_moments(*reference.moments())
    x = normal(4, 3, rng_seed=rng_seed)
    moved = reference.whiten(chart)
    jacobian = torch.linalg.slogdet(chart.root)[1]
    assert torch.allclose(moved.log_prob(chart.forward(x)), reference.log_prob(x) + jacobian, rtol=1e-8, atol=1e-8)
    assert torch.allclose(moved.score(chart.forward(x)), chart.push_gradient(reference.score(x)), rtol=1e-6, atol=1e-7)
    assert torch.allclose(moved.moments()[1], torch.eye(3).double(), atol=1e-8)


def test_draws_fall_in_components_by_share():
    reference = Mixture(torch.tensor([1.0, 3.0]), torch.tensor([[-50.0], [50.0]]), torch.ones(2, 1, 1))
    draws = reference.sample(10_000, generator=torch.Generator().manual_seed(0))
    assert abs((draws > 0).double().mean().item() - 0.75) < 5 * (0.75 * 0.25 / 10_000) ** 0.5
    assert abs(draws[draws > 0].std().item() - 1.0) < 0.06


def test_shares_are_normalised_and_scale_leaves_the_mixture_alone():
    means, covs, x = normal(2, 2), torch.eye(2).double().expand(2, 2, 2), normal(3, 2, rng_seed=1)
    first, second = (Mixture(torch.tensor(s).double(), means, covs) for s in ([1.0, 3.0], [10.0, 30.0]))
    assert torch.allclose(first.log_prob(x), second.log_prob(x))


def test_a_component_without_share_is_never_drawn_and_never_felt():
    means, covs = torch.tensor([[0.0], [100.0]]), torch.ones(2, 1, 1)
    reference = Mixture(torch.tensor([1.0, 0.0]), means, covs)
    assert reference.sample(500, generator=torch.Generator().manual_seed(0)).abs().max() < 10
    assert bool(torch.isfinite(reference.score(torch.zeros(3, 1))).all())
    assert bool(torch.isfinite(reference.log_prob(torch.zeros(3, 1))).all())


@pytest.mark.parametrize("shares", [[-1.0, 2.0], [0.0, 0.0], [torch.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="`shares` must"):
        _mixture(shares)


def _mixture(shares):
    return Mixture(torch.tensor(shares), torch.zeros(len(shares), 1), torch.ones(len(shares), 1, 1))
