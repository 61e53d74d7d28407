import numpy as np
import torch

from amsip.kernels import Octaves, SquaredExponential
from amsip.references.gaussian import Gaussian
from amsip.references.projected import Projected
from amsip.references.sampler import Sampler
from amsip.references.samples import Samples
from amsip.subspace import leading_subspace, score_free_spectrum
from amsip.weights import optimal_weights
from amsip.whitening import Whitening


def linear_model(d: int, k: int, rng_seed: int = 0):
    """A linear-Gaussian model: prior moments, forward matrix, exact posterior moments for one observation."""
    rng = np.random.default_rng(rng_seed)
    mean, root = rng.normal(size=d), rng.normal(size=(d, d))
    prior = root @ root.T + 0.1 * np.eye(d)
    forward, noise = rng.normal(size=(k, d)), 0.3
    gain = prior @ forward.T @ np.linalg.inv(forward @ prior @ forward.T + noise**2 * np.eye(k))
    observation = rng.normal(size=k)
    posterior = (mean + gain @ (observation - forward @ mean), prior - gain @ forward @ prior)
    values, vectors = np.linalg.eigh(prior)
    half = (vectors * np.sqrt(values)) @ vectors.T
    information = half @ forward.T @ forward @ half / noise**2
    return tuple(torch.tensor(a) for a in (mean, prior, information, *posterior))


def test_full_informed_rank_recovers_the_exact_posterior_moments():
    mean, prior, information, exact_mean, exact_cov = linear_model(7, 3)
    latent = Projected(Gaussian(exact_mean, exact_cov), leading_subspace(information, mean, prior, rank=3))
    lifted_mean, lifted_cov = latent.subspace.complete(*latent.moments())
    assert torch.allclose(lifted_cov, exact_cov, atol=1e-8)
    assert torch.allclose(lifted_mean, exact_mean, atol=1e-8)


def test_latent_posterior_of_a_linear_model_is_diagonal_in_one_over_one_plus_lambda():
    mean, prior, information, exact_mean, exact_cov = linear_model(7, 3)
    latent = Projected(Gaussian(exact_mean, exact_cov), leading_subspace(information, mean, prior, rank=2))
    shrunk = 1.0 - score_free_spectrum(latent.subspace.spectrum[:2])
    assert torch.allclose(latent.moments()[1], torch.diag(shrunk), atol=1e-8)


def test_closed_form_stays_closed_form_and_agrees_with_projected_samples():
    mean, prior, information, exact_mean, exact_cov = linear_model(5, 2)
    subspace = leading_subspace(information, mean, prior, rank=2)
    exact = Projected(Gaussian(exact_mean, exact_cov), subspace)
    draws = Gaussian(exact_mean, exact_cov).sample(20000, generator=torch.Generator().manual_seed(1))
    sampled = Projected(Samples(draws), subspace)
    z = exact.sample(3, generator=torch.Generator().manual_seed(2))
    for kernel in (SquaredExponential(0.5), Octaves(0.2, 3)):
        assert torch.allclose(exact.embed(kernel).mean(z), sampled.embed(kernel).mean(z), atol=0.02)
    direct = (draws - mean) @ torch.linalg.inv(_root(prior)) @ subspace.directions
    assert torch.allclose(sampled.latent.atoms, direct, atol=1e-8)


def test_rule_on_features_completes_to_the_posterior():
    mean, prior, information, exact_mean, exact_cov = linear_model(6, 2)
    latent = Projected(Gaussian(exact_mean, exact_cov), leading_subspace(information, mean, prior, rank=2))
    embedding = latent.embed(SquaredExponential(1.0))
    nodes = latent.sample(24, generator=torch.Generator().manual_seed(0))
    weights = optimal_weights(nodes, embedding, exact=2)
    lifted_mean, lifted_cov = latent.complete(nodes, weights)
    assert torch.allclose(lifted_mean, exact_mean, atol=1e-6)
    assert torch.allclose(lifted_cov, exact_cov, atol=1e-6)
    assert latent.lift(nodes).shape == (24, 6)


def test_features_whiten_and_a_sampler_projects_too():
    mean, prior, information, exact_mean, exact_cov = linear_model(5, 2)
    posterior = Gaussian(exact_mean, exact_cov)
    flow = Sampler(lambda n, generator: posterior.sample(n, generator=generator), 5, bank=500)
    latent = Projected(flow, leading_subspace(information, mean, prior, rank=2))
    white = latent.whiten(Whitening.of_moments(*latent.moments()))
    assert (latent.dim, white.dim) == (2, 2)
    assert latent.sample(3).shape == (3, 2)
    assert torch.allclose(white.moments()[1], torch.eye(2, dtype=torch.float64), atol=1e-8)


def _root(matrix: torch.Tensor) -> torch.Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.sqrt()) @ vectors.mT
