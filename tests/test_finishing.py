"""The affine finish makes means and covariances exact, and knows when it cannot."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amsip import Octaves, Polynomial, SquaredExponential
from amsip.finishing import match_moments, sees_covariances

DTYPE = torch.float64


def weighted_moments(z, w):
    mean = sum(w[j] * z[j] for j in range(len(w)))
    cov = sum(w[j] * torch.outer(z[j] - mean, z[j] - mean) for j in range(len(w)))
    return mean, cov


def problem(number: int, m: int, d: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(number)
    z = torch.randn(m, d, generator=generator, dtype=DTYPE)
    w = 0.2 + torch.rand(m, generator=generator, dtype=DTYPE)
    root = torch.randn(d, d, generator=generator, dtype=DTYPE) + 2.0 * torch.eye(d, dtype=DTYPE)
    return z, w / w.sum(), torch.randn(d, generator=generator, dtype=DTYPE), root @ root.T / d


@given(number=st.integers(0, 10_000), d=st.integers(1, 5))
def test_mean_and_covariance_become_exact(number, d):
    z, w, mean, cov = problem(number, 23, d)
    found_mean, found_cov = weighted_moments(match_moments(z, w, (mean, cov)), w)
    assert (found_mean - mean).abs().max() < 1e-10
    assert (found_cov - cov).abs().max() < 1e-9


@given(number=st.integers(0, 10_000))
def test_nothing_moves_when_the_moments_are_right(number):
    z, w, _, _ = problem(number, 17, 3)
    assert (match_moments(z, w, weighted_moments(z, w)) - z).abs().max() < 1e-8


@given(number=st.integers(0, 10_000), m=st.integers(2, 6))
def test_with_no_more_nodes_than_coordinates_the_total_variance_is_exact(number, m):
    z, w, mean, cov = problem(number, m, 6)
    moved = match_moments(z, w, (mean, cov))
    found_mean, found_cov = weighted_moments(moved, w)
    assert (found_mean - mean).abs().max() < 1e-10
    assert abs(torch.linalg.solve(cov, found_cov).trace().item() - 6.0) < 1e-8
    # the shape is kept: one factor for every pair of nodes
    ratios = torch.pdist(moved) / torch.pdist(z)
    assert (ratios / ratios[0] - 1.0).abs().max() < 1e-10


def test_a_direction_without_spread_does_not_count_in_the_total():
    z, w, mean, cov = problem(5, 3, 4)
    z[:, 3], mean[3], cov[3, :], cov[:, 3] = 2.0, 2.0, 0.0, 0.0
    found = weighted_moments(match_moments(z, w, (mean, cov)), w)[1]
    assert abs(torch.linalg.solve(cov[:3, :3], found[:3, :3]).trace().item() - 3.0) < 1e-8


def test_nodes_keep_their_distances_in_a_direction_without_spread():
    z, w, mean, cov = problem(5, 3, 4)
    mean[3], cov[3, :], cov[:, 3] = 2.0, 0.0, 0.0
    moved = match_moments(z, w, (mean, cov))
    apart = moved[:, 3] - moved[0, 3] - (z[:, 3] - z[0, 3])
    assert apart.abs().max() < 1e-12
    assert not torch.allclose(moved[:, 0] - moved[0, 0], z[:, 0] - z[0, 0], rtol=1e-3)


def test_an_indefinite_covariance_gets_its_mean_alone():
    z = torch.tensor([[-1.0], [0.0], [1.0]], dtype=DTYPE)
    w = torch.tensor([-1.0, 3.0, -1.0], dtype=DTYPE)
    moved = match_moments(z, w, (torch.tensor([5.0], dtype=DTYPE), torch.eye(1, dtype=DTYPE)))
    assert torch.allclose(moved, z + 5.0)


def test_a_constant_coordinate_stays_where_it_is():
    z, w, mean, cov = problem(3, 23, 3)
    z[:, 2], mean[2], cov[2, :], cov[:, 2] = 4.0, 4.0, 0.0, 0.0
    moved = match_moments(z, w, (mean, cov))
    assert torch.allclose(moved[:, 2], torch.full((23,), 4.0, dtype=DTYPE))
    assert (weighted_moments(moved, w)[1] - cov).abs().max() < 1e-9


@pytest.mark.parametrize("variance", [0.0, 1e-170, 1e170])
def test_a_point_and_spreads_whose_squares_leave_the_range_are_no_obstacle(variance):
    # squares of the largest variance were 0 or infinite
    z = torch.tensor([[-1.0], [3.0]], dtype=DTYPE) * variance**0.5
    w, mean = torch.full((2,), 0.5, dtype=DTYPE), torch.zeros(1, dtype=DTYPE)
    moved = match_moments(z, w, (mean, torch.full((1, 1), variance, dtype=DTYPE)))
    expected = torch.tensor([[-1.0], [1.0]], dtype=DTYPE) * variance**0.5
    assert torch.allclose(moved, expected, rtol=1e-12, atol=0.0)


def test_queries_are_finished_one_by_one():
    batch = [problem(number, 11, 2) for number in range(3)]
    z, w, mean, cov = (torch.stack(part) for part in zip(*batch, strict=True))
    together = match_moments(z, w, (mean, cov))
    assert (together[1] - match_moments(z[1], w[1], (mean[1], cov[1]))).abs().max() < 1e-12


def test_one_reference_serves_many_rules():
    batch = [problem(number, 11, 2) for number in range(3)]
    z, w = (torch.stack([part[i] for part in batch]) for i in (0, 1))
    mean, cov = batch[0][2:]
    together = match_moments(z, w, (mean, cov))
    assert (together[2] - match_moments(z[2], w[2], (mean, cov))).abs().max() < 1e-12


def test_which_kernels_ask_for_covariances():
    assert sees_covariances(Octaves(1.0) + 0.1 * Polynomial(2))
    assert not sees_covariances(SquaredExponential(1.0) + Polynomial(1))
