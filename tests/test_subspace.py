import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_projected import linear_model

from amsip import subspace as sub

IDENTITY = torch.eye(5, dtype=torch.float64)
ORIGIN = torch.zeros(5, dtype=torch.float64)


def joint_draws(n: int, rng_seed: int = 0):
    """A linear-Gaussian joint sample in five dimensions with two informed directions, and its forward matrix."""
    generator = torch.Generator().manual_seed(rng_seed)
    forward = torch.tensor([[2.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0, 0.0]], dtype=torch.float64)
    x = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    return x, x @ forward.mT + 0.7 * torch.randn(n, 2, generator=generator, dtype=torch.float64), forward


def overlap(first: torch.Tensor, second: torch.Tensor) -> float:
    """The smallest cosine between two subspaces."""
    return torch.linalg.svdvals(first.mT @ second).min().item()


def test_eigenvalue_map_is_exact_on_a_linear_gaussian_model():
    mean, prior, information, _, posterior = linear_model(7, 3)
    values, vectors = torch.linalg.eigh(prior)
    inverse_root = (vectors / values.sqrt()) @ vectors.mT
    score_free = IDENTITY.new_tensor(np.eye(7)) - inverse_root @ posterior @ inverse_root
    h, c = sub.leading_subspace(information, mean, prior, rank=3), sub.leading_subspace(score_free, mean, prior, rank=3)
    assert torch.allclose(c.spectrum, sub.score_free_spectrum(h.spectrum), atol=1e-8)
    assert overlap(h.directions, c.directions) == pytest.approx(1.0, abs=1e-8)


def test_score_information_is_the_fisher_matrix_in_the_prior_metric():
    x, y, forward = joint_draws(40000)
    scores = (y - x @ forward.mT) @ forward / 0.49
    prior = torch.diag(torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    expected = prior.sqrt() @ forward.mT @ forward @ prior.sqrt() / 0.49
    assert torch.allclose(sub.score_information(scores, prior), expected, atol=0.05 * expected.max().item())


def test_sliced_regression_recovers_the_score_based_plane():
    x, y, forward = joint_draws(20000)
    found = sub.leading_subspace(sub.sliced_information(x, y, ORIGIN, IDENTITY, slices=128), ORIGIN, IDENTITY, rank=2)
    assert overlap(found.directions, torch.linalg.svd(forward)[2][:2].mT) > 0.99


def test_kernel_regression_recovers_plane_and_spectrum_without_counting_noise():
    x, y, forward = joint_draws(4000)
    matrix = sub.regression_information(x, y, ORIGIN, IDENTITY, bandwidth=0.3)
    exact = sub.score_free_spectrum(torch.linalg.svdvals(forward).square() / 0.49)
    found = sub.leading_subspace(matrix, ORIGIN, IDENTITY, rank=2)
    assert torch.allclose(found.spectrum[:2], exact, atol=0.08)
    assert found.spectrum[2:].abs().max() < 0.02
    assert overlap(found.directions, torch.linalg.svd(forward)[2][:2].mT) > 0.99


def test_splitting_removes_the_noise_of_the_cell_means():
    x, _, _ = joint_draws(2048)
    unrelated = torch.randn(2048, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    spectrum = torch.linalg.eigvalsh(sub.sliced_information(x, unrelated, ORIGIN, IDENTITY, slices=256))
    # unsplit means of eight draws would put every eigenvalue near 1/8
    assert spectrum.abs().max() < 0.06
    assert abs(spectrum.mean()) < 0.02


def test_second_moments_see_a_direction_that_only_spreads():
    x, _, _ = joint_draws(16384)
    y = x[:, :1].abs() + 0.05 * torch.randn(16384, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    blind = sub.sliced_information(x, y, ORIGIN, IDENTITY)
    seeing = sub.leading_subspace(sub.spread_information(x, y, ORIGIN, IDENTITY), ORIGIN, IDENTITY, rank=1)
    assert blind.diagonal()[0].abs() < 0.02
    assert seeing.directions[0, 0].abs() > 0.99


def test_features_have_identity_prior_covariance_and_lift_is_their_conditional_mean():
    mean, prior, information, _, _ = linear_model(7, 3)
    plane = sub.leading_subspace(information, mean, prior, rank=3)
    push = plane.chart.inverse_root
    assert torch.allclose(push @ prior @ push.mT, torch.eye(3, dtype=torch.float64), atol=1e-8)
    z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(plane.features(plane.lift(z)), z, atol=1e-8)
    assert torch.allclose(plane.chart.root, prior @ push.mT, atol=1e-8)
    assert torch.allclose(push @ plane.complement_cov, torch.zeros(3, 7, dtype=torch.float64), atol=1e-8)


@given(st.integers(1, 9), st.floats(0.01, 100.0))
def test_participation_rank_counts_equal_eigenvalues(count, size):
    spectrum = torch.zeros(11, dtype=torch.float64)
    spectrum[:count] = size
    assert sub.participation_rank(spectrum) == count
    assert sub.energy_rank(spectrum, 0.999) == count


def test_participation_rank_of_the_tomography_spectrum_is_seven():
    spectrum = torch.tensor([26.63, 10.176, 7.507, 5.501, 4.281, 2.729, 2.685, 2.638, 1.799], dtype=torch.float64)
    expected = float(spectrum.sum() ** 2 / spectrum.square().sum())
    assert sub.participation_rank(spectrum) == int(np.ceil(expected))


def test_truncation_report():
    spectrum = torch.tensor([6.0, 3.0, 1.0, 0.0, -1e-9], dtype=torch.float64)
    plane = sub.leading_subspace(torch.diag(spectrum), ORIGIN, IDENTITY, rank=2)
    assert plane.retained == pytest.approx(0.9)
    assert plane.discarded == pytest.approx(1.0)


def test_bad_arguments_are_named():
    x, y, _ = joint_draws(64)
    with pytest.raises(ValueError, match="power of two"):
        sub.sliced_information(x, y, ORIGIN, IDENTITY, slices=12)
    with pytest.raises(ValueError, match="at least four"):
        sub.sliced_information(x, y, ORIGIN, IDENTITY, slices=32)
    with pytest.raises(ValueError, match="`rank` must be between 1 and the dimension 5"):
        sub.leading_subspace(IDENTITY, ORIGIN, IDENTITY, rank=6)
    with pytest.raises(ValueError, match="no direction is informed"):
        sub.leading_subspace(0 * IDENTITY, ORIGIN, IDENTITY)
