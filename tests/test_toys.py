import numpy as np
import oracles
import pytest
import torch

from amsip.discrepancy import mmd2
from amsip.kernels import SquaredExponential
from amsip.problems import toys
from amsip.weights import uniform_weights

TABLE = [*toys.paper_toys(), toys.tomography_latent()]
slow = [pytest.param(t, marks=pytest.mark.slow) if t.dim > 10 else t for t in TABLE]


@pytest.mark.parametrize("toy", slow, ids=lambda toy: toy.name)
def test_bandwidth_is_the_printed_one_to_four_digits(toy):
    assert f"{toy.bandwidth:.4f}" == f"{toy.printed:.4f}"


def test_gaussian_in_the_plane_is_the_conjugate_posterior():
    prior, forward = np.array([[1.5, 0.2], [0.2, 1.0]]), np.array([[1.0, 0.3], [-0.1, 0.9]])
    expected = oracles.gaussian_posterior_cov(prior, forward, np.diag([0.15, 0.20]))
    assert np.allclose(toys.gaussian_toy(2).reference().cov.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("dim", [4, 8, 16])
def test_rotated_gaussians_have_the_spectrum_of_the_shrunk_prior(dim):
    spectrum = torch.linalg.eigvalsh(toys.gaussian_toy(dim).reference().cov)
    prior = np.linspace(1.0, 2.0, dim)
    assert np.allclose(spectrum.numpy(), 1.0 / (1.0 / prior + 1.0 / 0.09), atol=1e-12)


@pytest.mark.parametrize("toy", [*TABLE, toys.five_modes()], ids=lambda toy: toy.name)
def test_draws_have_the_moments_of_the_reference(toy):
    draws = toy.draws(20000, rng_seed=1)
    mean, cov = toy.reference().moments()
    error = (draws.mean(0) - mean) / cov.diagonal().sqrt() * 20000**0.5
    assert error.abs().max() < 5.0 * (2.0 if toy.name == "banana" else 1.0)
    assert torch.allclose(draws.var(0), cov.diagonal(), rtol=0.15)


@pytest.mark.parametrize("toy", TABLE, ids=lambda toy: toy.name)
def test_whitened_variant_has_unit_covariance_and_dimension_bandwidth(toy):
    white = toy.whitened()
    mean, cov = white.reference().moments()
    assert white.bandwidth == toy.dim**0.5
    assert torch.allclose(cov, torch.eye(toy.dim, dtype=torch.float64), atol=1e-6)
    assert mean.abs().max() < 1e-8
    chart_of_draws = white.draws(5, rng_seed=3)
    assert chart_of_draws.shape == (5, toy.dim)


def test_floor_of_independent_seeds_is_what_theory_says():
    toy = toys.gaussian_toy(2)
    embedding = toy.reference().embed(SquaredExponential(0.1648))
    seeds = toy.seed_sets(8, 400)
    scores = mmd2(seeds, uniform_weights(seeds), embedding)
    expected = (1.0 - embedding.energy) / 8
    assert abs(scores.mean() - expected) < 5.0 * scores.std() / 20.0


def test_seed_sets_are_the_same_every_time_and_differ_between_budgets():
    toy = toys.mixture_toy(10)
    assert torch.equal(toy.seed_sets(4, 3), toy.seed_sets(4, 3))
    assert not torch.equal(toy.seed_sets(4, 4)[0], toy.seed_sets(8, 2)[0, :4])


def test_banana_training_bank_is_the_head_of_the_scoring_bank():
    small, full = toys.banana(toys.BANANA_TRAINING_BANK), toys.banana()
    assert torch.equal(full.reference().atoms[: toys.BANANA_TRAINING_BANK], small.reference().atoms)
    assert full.reference().atoms.shape == (20000, 2)


def test_unknown_dimensions_are_refused():
    with pytest.raises(ValueError, match="`dim` must be one of"):
        toys.gaussian_toy(3)
