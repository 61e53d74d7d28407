import numpy as np
import oracles
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amsip import (
    Gaussian,
    InverseMultiquadric,
    Matern,
    Mixture,
    Octaves,
    Samples,
    SquaredExponential,
    Whitened,
    Whitening,
)
from amsip.maps.meanshift import MeanShift, classical_mean_shift, interacting_shift
from amsip.maps.readings import FreshSamples, SmoothedScore, read_embedding


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


def gaussian(d: int = 2) -> Gaussian:
    a = points(d, d, rng_seed=1)
    return Gaussian(points(d, rng_seed=2), a @ a.mT + 0.3 * torch.eye(d, dtype=torch.float64))


def image(nodes: torch.Tensor, embedding) -> torch.Tensor:
    """Psi itself."""
    return nodes + interacting_shift(nodes, embedding.kernel, *read_embedding(nodes, embedding), jitter=1e-15)


@settings(max_examples=10, deadline=None)
@given(strategies.samples(low=2, dim=2), st.floats(0.3, 3.0), st.integers(0, 99))
def test_one_node_is_classical_mean_shift(reference, h, rng_seed):
    node = reference.atoms.mean(0) + points(1, 2, rng_seed=rng_seed)
    expected = oracles.mean_shift_step(
        node[0].numpy(), reference.atoms.numpy(), reference.normalised_weights.numpy(), h
    )
    embedding = reference.embed(SquaredExponential(h))
    np.testing.assert_allclose(image(node, embedding)[0].numpy(), expected, rtol=1e-9, atol=1e-9)
    step = classical_mean_shift(node, reference.atoms, SquaredExponential(h), reference.normalised_weights)
    np.testing.assert_allclose(step[0].numpy(), expected, rtol=1e-9, atol=1e-9)


def test_many_nodes_against_explicit_sums():
    atoms, nodes = points(11, 2), points(5, 2, rng_seed=4)
    weights = torch.softmax(points(11, rng_seed=5), 0)
    embedding = Samples(atoms, weights).embed(SquaredExponential(0.6))
    expected = oracles.interacting_map(nodes.numpy(), atoms.numpy(), weights.numpy(), 0.6)
    np.testing.assert_allclose(image(nodes, embedding).numpy(), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kernel", [Octaves(0.5, 3), Matern(1.0, 2.5), InverseMultiquadric(0.8)])
def test_classical_step_averages_under_the_shadow(kernel):
    atoms, node = points(7, 3), points(1, 3, rng_seed=1)
    shadow = kernel.shadow(node, atoms)[0].numpy()
    expected = sum(s * x for s, x in zip(shadow, atoms.numpy(), strict=True)) / shadow.sum()
    np.testing.assert_allclose(classical_mean_shift(node, atoms, kernel)[0].numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", [Octaves(0.6, 3), Matern(1.0, 2.5), InverseMultiquadric(0.8)])
def test_general_map_solves_its_defining_equations(kernel):
    """S diag(w) Psi = S_1 + (diag(S w) - diag(s_0)) z, from the derivation by explicit sums over atoms."""
    atoms, z = points(13, 2), points(5, 2, rng_seed=4)
    embedding = Samples(atoms).embed(kernel)
    w = torch.linalg.solve(kernel.gram(z), embedding.mean(z))
    s, cross = kernel.shadow(z, z), kernel.shadow(z, atoms) / 13
    right = cross @ atoms + ((s @ w) - cross.sum(-1))[:, None] * z
    torch.testing.assert_close(s @ (w[:, None] * image(z, embedding)), right, rtol=1e-8, atol=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.floats(1e-8, 1e8))
def test_the_total_mass_does_not_matter(mass):
    embedding, nodes = gaussian().embed(SquaredExponential(0.7)), points(5, 2)
    mean, grad = embedding.mean_and_grad(nodes)
    torch.testing.assert_close(
        interacting_shift(nodes, embedding.kernel, mass * mean, mass * grad),
        interacting_shift(nodes, embedding.kernel, mean, grad),
        rtol=1e-6,
        atol=1e-9,
    )


def test_a_whitened_kernel_is_the_map_in_the_chart():
    reference = gaussian()
    chart = Whitening.of_moments(*reference.moments())
    nodes = reference.sample(5, generator=torch.Generator().manual_seed(0))
    kernel = SquaredExponential(1.4)
    inside = chart.inverse(image(chart.forward(nodes), reference.whiten(chart).embed(kernel)))
    torch.testing.assert_close(image(nodes, reference.embed(Whitened(kernel, chart))), inside, rtol=1e-7, atol=1e-8)


@given(strategies.radial_kernels(), st.integers(0, 99))
def test_the_auxiliary_gram_of_a_radial_kernel_is_its_shadow(kernel, rng_seed):
    x = points(5, 2, rng_seed=rng_seed)
    gram, shadow = kernel.gram_and_shadow(x)
    torch.testing.assert_close(shadow, kernel.shadow(x, x), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gram, kernel.gram(x), rtol=1e-10, atol=1e-12)


def test_far_away_the_log_space_reading_still_points_home():
    embedding = Samples(points(7, 2)).embed(SquaredExponential(0.1))
    nodes = torch.full((1, 2), 500.0, dtype=torch.float64)
    assert embedding.mean(nodes).item() == 0.0
    assert image(nodes, embedding).abs().max() < 10.0
    both = torch.cat([nodes, points(1, 2)])
    assert image(both, embedding)[0].abs().max() < 10.0


def test_reading_in_blocks_is_reading_at_once(monkeypatch):
    embedding, nodes = Samples(points(2, 53, 3)).embed(SquaredExponential(0.6)), points(2, 5, 3, rng_seed=1)
    mean, grad = read_embedding(nodes, embedding)
    plain, slope = embedding.mean_and_grad(nodes)
    torch.testing.assert_close(mean, plain / plain.amax(-1, keepdim=True), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(grad / mean[..., None], slope / plain[..., None], rtol=1e-8, atol=1e-8)
    monkeypatch.setattr("amsip._linalg.BLOCK_ENTRIES", 70)
    monkeypatch.setattr("amsip._linalg.RECORDED_ENTRIES", 70)
    for blocked, whole in zip(read_embedding(nodes, embedding), (mean, grad), strict=True):
        torch.testing.assert_close(blocked, whole, rtol=1e-10, atol=1e-12)


def test_stein_identity_under_a_gaussian():
    """sigma^2 grad log v_0 of a Gaussian is -sigma^2 (Sigma + sigma^2 I)^-1 (z - m), exactly."""
    posterior, h = gaussian(), 0.8
    nodes = points(3, 2) + posterior.mean
    reading = SmoothedScore(posterior.log_prob, posterior.score, 40_000, torch.Generator().manual_seed(0))
    embedding = posterior.embed(SquaredExponential(h))
    mean, grad = reading(nodes, embedding)
    smoothed = posterior.cov + h**2 * torch.eye(2, dtype=torch.float64)
    exact = -torch.linalg.solve(smoothed, (nodes - posterior.mean).mT).mT
    torch.testing.assert_close(grad / mean[..., None], exact, rtol=0.05, atol=0.02)
    exact_mean = embedding.mean(nodes)
    torch.testing.assert_close(mean, exact_mean / exact_mean.max(), rtol=0.03, atol=0.0)


def test_score_and_samples_lead_to_the_same_nodes():
    posterior = Mixture(
        torch.ones(2), torch.tensor([[-2.0, 0.0], [2.0, 0.0]]).double(), torch.eye(2).double().expand(2, 2, 2)
    )
    embedding = posterior.embed(SquaredExponential(1.0))
    seeds = posterior.sample(3, generator=torch.Generator().manual_seed(1))
    exact = MeanShift(steps=40)(seeds, embedding)
    score = SmoothedScore(posterior.log_prob, posterior.score, 2000, torch.Generator().manual_seed(2))
    fresh = FreshSamples(posterior, 4000, torch.Generator().manual_seed(3))
    assert (MeanShift(steps=40, reading=score)(seeds, embedding) - exact).abs().mean() < 0.15
    assert (MeanShift(steps=40, reading=fresh)(seeds, embedding) - exact).abs().mean() < 0.15


def test_the_smoothed_score_refuses_other_kernels():
    posterior = gaussian()
    reading = SmoothedScore(posterior.log_prob, posterior.score, 3)
    with pytest.raises(TypeError, match="SquaredExponential"):
        reading(points(3, 2), posterior.embed(Octaves(1.0, 2)))


def test_the_box_holds_and_may_differ_by_coordinate():
    embedding = gaussian().embed(SquaredExponential(0.7))
    low, high = torch.tensor([-0.1, 0.0]), torch.tensor([0.1, 0.5])
    nodes = MeanShift(steps=3, bounds=(low, high))(points(2, 5, 2), embedding)
    assert (nodes >= low - 1e-12).all()
    assert (nodes <= high + 1e-12).all()


def test_damping_is_the_share_of_the_way():
    embedding, nodes = gaussian().embed(SquaredExponential(0.7)), points(5, 2)
    whole = MeanShift(steps=1, damping=1.0)(nodes, embedding) - nodes
    torch.testing.assert_close(MeanShift(steps=1, damping=0.25)(nodes, embedding) - nodes, 0.25 * whole)


def test_queries_do_not_see_each_other():
    embedding, nodes = gaussian().embed(Octaves(0.7, 2)), points(3, 5, 2)
    together = MeanShift(steps=3)(nodes, embedding)
    for i in range(3):
        torch.testing.assert_close(MeanShift(steps=3)(nodes[i], embedding), together[i], rtol=1e-7, atol=1e-9)


def test_the_gradient_the_map_follows_is_the_gradient_of_the_discrepancy():
    embedding, nodes = gaussian().embed(SquaredExponential(0.9)), points(4, 2)
    free = torch.linalg.solve(embedding.kernel.gram(nodes), embedding.mean(nodes))
    slope = embedding.mean_and_grad(nodes)[1] - embedding.kernel.weighted_grad(nodes, nodes, free)
    moved = free[:, None] * (
        embedding.kernel.gram_and_shadow(nodes)[1] @ (free[:, None] * (image(nodes, embedding) - nodes))
    )
    torch.testing.assert_close(moved, free[:, None] * slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("arguments", [{"steps": -1}, {"damping": -0.1}, {"bounds": (1.0, 0.0)}])
def test_refuses_meaningless_options(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        MeanShift(**arguments)
