import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from strategies import few, gaussians, rng_seeds

from amsip import Gaussian, Whitening


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


@few
@given(gaussians(), rng_seeds)
def test_log_density_is_the_textbook_one_and_the_score_its_gradient(reference, rng_seed):
    x = normal(3, reference.dim, rng_seed=rng_seed)
    mean, cov = reference.mean.numpy(), reference.cov.numpy()
    assert np.allclose(reference.log_prob(x), [oracles.normal_log_density(p, mean, cov) for p in x.numpy()])
    for point, score in zip(x.numpy(), reference.score(x).numpy(), strict=True):
        slope = oracles.gradient(lambda p: oracles.normal_log_density(p, mean, cov), point)
        assert np.allclose(score, slope, rtol=1e-6, atol=1e-7)


@few
@given(gaussians(3), rng_seeds)
def test_whitening_moves_density_score_and_moments_together(reference, rng_seed):
    chart = Whitening.of_samples(normal(20, 3, rng_seed=rng_seed))
    x = normal(4, 3, rng_seed=rng_seed + 1)
    moved = reference.whiten(chart)
    jacobian = torch.linalg.slogdet(chart.root)[1]
    assert torch.allclose(moved.log_prob(chart.forward(x)), reference.log_prob(x) + jacobian, rtol=1e-9, atol=1e-9)
    assert torch.allclose(moved.score(chart.forward(x)), chart.push_gradient(reference.score(x)), rtol=1e-7, atol=1e-8)


def test_whitened_by_its_own_moments_it_is_standard():
    reference = Gaussian(normal(3), torch.diag(torch.tensor([1e-12, 1.0, 1e12])).double())
    moved = reference.whiten(Whitening.of_moments(*reference.moments()))
    assert torch.allclose(moved.mean, torch.zeros(3).double())
    assert torch.allclose(moved.cov, torch.eye(3).double(), atol=1e-9)


def test_draws_have_its_moments_within_five_standard_errors():
    reference = Gaussian(normal(2), torch.tensor([[2.0, 0.7], [0.7, 0.5]]).double())
    n = 40_000
    draws = reference.sample(n, generator=torch.Generator().manual_seed(3))
    spread = reference.cov.diagonal().sqrt()
    assert bool(((draws.mean(0) - reference.mean).abs() < 5 * spread / n**0.5).all())
    assert bool(((torch.cov(draws.T) - reference.cov).abs() < 5 * 2**0.5 * spread[:, None] * spread / n**0.5).all())


def test_one_per_query():
    means, covs = normal(3, 2), torch.eye(2).double() * torch.tensor([1.0, 4.0, 9.0])[:, None, None]
    together, x = Gaussian(means, covs), normal(3, 5, 2, rng_seed=1)
    for i in range(3):
        assert torch.allclose(together.score(x)[i], Gaussian(means[i], covs[i]).score(x[i]))
        assert torch.allclose(together.log_prob(x)[i], Gaussian(means[i], covs[i]).log_prob(x[i]))
    assert together.sample(4, generator=torch.Generator().manual_seed(0)).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (torch.full((2, 2), torch.nan), "finite"),
    ],
)
def test_covariances_that_are_none_are_refused(cov, message):
    with pytest.raises(ValueError, match=message):
        Gaussian(torch.zeros(2), cov)


def test_means_must_be_finite():
    with pytest.raises(ValueError, match="`mean` must be finite"):
        Gaussian(torch.tensor([torch.nan, 0.0]), torch.eye(2))
