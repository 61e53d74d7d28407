import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import clouds, covariances, few, rng_seeds, some

from amsip import Samples, Whitening


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def identity(d):
    return torch.eye(d, dtype=torch.float64)


@some
@given(covariances(4), rng_seeds, st.floats(-6.0, 6.0), st.floats(-6.0, 6.0))
def test_covariance_becomes_the_identity_in_any_units(cov, rng_seed, low, high):
    units = torch.tensor([10.0**low, 1.0, 10.0**high, 1.0], dtype=torch.float64)
    chart = Whitening.of_moments(normal(4, rng_seed=rng_seed) * units, cov * units[:, None] * units)
    moved, pushed = chart.push_moments(chart.centre, cov * units[:, None] * units)
    assert torch.allclose(pushed, identity(4), atol=1e-8)
    assert torch.equal(moved, torch.zeros(4, dtype=torch.float64))


@some
@given(covariances(3), rng_seeds)
def test_roots_are_roots_of_the_covariance_and_of_its_inverse(cov, rng_seed):
    chart = Whitening.of_moments(normal(3, rng_seed=rng_seed), cov)
    assert torch.allclose(chart.root @ chart.root.mT, cov, rtol=1e-10, atol=1e-12)
    assert torch.allclose(chart.inverse_root.mT @ chart.inverse_root, torch.linalg.inv(cov), rtol=1e-8, atol=1e-10)


@few
@given(clouds(low=1, high=9), rng_seeds)
def test_inverse_undoes_forward(x, rng_seed):
    chart = Whitening.of_samples(x)
    assert torch.allclose(chart.inverse(chart.forward(x)), x, rtol=1e-9, atol=1e-9)


@few
@given(clouds(low=20, high=40, dim=3))
def test_samples_get_zero_mean_and_identity_covariance(x):
    u = Whitening.of_samples(x).forward(x)
    mean, cov = oracles.weighted_moments(u.numpy(), np.full(len(u), 1.0 / len(u)))
    assert np.allclose(mean, 0.0, atol=1e-10)
    assert np.allclose(cov, np.eye(3), atol=1e-8)


@few
@given(clouds(low=20, high=40, dim=3), st.floats(1e-3, 1e3), st.integers(0, 2))
def test_units_do_not_matter(x, factor, coordinate):
    units = torch.ones(3, dtype=torch.float64)
    units[coordinate] = factor
    plain, scaled = (Whitening.of_samples(v).forward(v) for v in (x, x * units))
    assert torch.allclose(plain, scaled, rtol=1e-7, atol=1e-8)


@few
@given(covariances(3), rng_seeds)
def test_gradients_follow_the_chain_rule_both_ways(cov, rng_seed):
    chart = Whitening.of_moments(normal(3, rng_seed=rng_seed), cov)
    x = normal(4, 3, rng_seed=rng_seed + 1).requires_grad_()
    u = chart.forward(x)
    u.retain_grad()
    (u.sin() * u.flip(-1)).sum().backward()
    assert torch.allclose(chart.pull_back(u.grad), x.grad, rtol=1e-9, atol=1e-11)
    assert torch.allclose(chart.push_gradient(x.grad), u.grad, rtol=1e-8, atol=1e-10)


def test_a_chart_per_query_is_a_chart_each():
    x = normal(3, 11, 2) * torch.tensor([1.0, 5.0, 0.1])[:, None, None]
    together = Whitening.of_samples(x)
    for i in range(3):
        single = Whitening.of_samples(x[i])
        assert torch.allclose(together.forward(x)[i], single.forward(x[i]), rtol=1e-10, atol=1e-12)
        assert torch.allclose(together.forward(x[0])[i], single.forward(x[0]), rtol=1e-10, atol=1e-12)


def test_constant_coordinates_stay_where_they_are():
    x = torch.cat([normal(50, 2), torch.full((50, 1), 0.1, dtype=torch.float64)], -1)
    chart = Whitening.of_samples(x)
    u = chart.forward(x)
    assert bool(torch.isfinite(u).all())
    assert u[:, 2].abs().max() < 1e-6
    moved = chart.inverse(u + 1.0)
    assert (moved[:, 2] - 0.1).abs().max() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_repeated_coordinate_gives_finite_whitened_samples(dtype):
    line = normal(200, 1).to(dtype)
    x = torch.cat([line, 3.0 * line, normal(200, 1, rng_seed=1).to(dtype)], -1)
    chart = Whitening.of_samples(x)
    u = chart.forward(x)
    assert bool(torch.isfinite(u).all())
    assert u.square().mean() < 1.1
    assert torch.allclose(chart.inverse(u), x, atol=1e-3 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e5, 1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_repeated_point_is_only_centred(value, dtype):
    x = torch.full((7, 3), value, dtype=dtype)
    chart = Whitening.of_samples(x)
    assert torch.equal(chart.root, torch.eye(3, dtype=dtype))
    assert chart.forward(x).abs().max() <= 4 * torch.finfo(dtype).eps * abs(value)


def test_one_sample_is_only_centred():
    x = normal(1, 4)
    assert torch.equal(Whitening.of_samples(x).forward(x), torch.zeros(1, 4, dtype=torch.float64))


def test_fewer_samples_than_coordinates_stay_finite():
    x = normal(3, 8)
    chart = Whitening.of_samples(x)
    assert bool(torch.isfinite(chart.forward(x)).all())
    assert torch.allclose(chart.inverse(chart.forward(x)), x, atol=1e-9)


def test_spread_near_rounding_of_a_large_mean_is_not_taken_for_spread():
    x = torch.full((100, 1), 1e6, dtype=torch.float64)
    x[::2] += 1e-10
    assert Whitening.of_samples(x).root.item() == 1.0


def test_single_precision_moments_give_a_single_precision_chart():
    chart = Whitening.of_moments(*Samples(normal(50, 2).float()).moments())
    assert {chart.centre.dtype, chart.root.dtype, chart.inverse_root.dtype} == {torch.float32}
    assert chart.forward(normal(3, 2)).dtype == torch.float64
