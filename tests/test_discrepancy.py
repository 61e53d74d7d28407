import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import clouds, few, gaussians, kernels, rng_seeds, samples, some

from amsip import Gaussian, Octaves, Polynomial, Samples, SquaredExponential, mmd2, optimal_weights, witness
from amsip.discrepancy import loss


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def test_three_points_by_hand():
    # atoms 0 and 2 with weights 1/4 and 3/4, one node at 1 with weight 1: distances 1, 1, 2
    atoms, weights = torch.tensor([[0.0], [2.0]]).double(), torch.tensor([0.25, 0.75]).double()
    near, far = math.exp(-0.5), math.exp(-2.0)
    expected = 1.0 - 2.0 * near + (0.0625 + 0.5625 + 2 * 0.1875 * far)
    embedding = Samples(atoms, weights).embed(SquaredExponential(1.0))
    assert mmd2(torch.ones(1, 1).double(), torch.ones(1).double(), embedding).item() == pytest.approx(
        expected, rel=1e-14
    )


@some
@given(samples(high=9, dim=2), clouds(high=7, dim=2), rng_seeds)
def test_it_is_the_double_sum_over_the_signed_difference(reference, z, rng_seed):
    w = normal(z.shape[0], rng_seed=rng_seed)
    found = mmd2(z, w, reference.embed(Octaves(0.5, 3)))
    alpha = reference.normalised_weights.numpy()
    expected = oracles.mmd2(
        lambda a, b: oracles.octaves(a, b, 0.5, 3), z.numpy(), w.numpy(), reference.atoms.numpy(), alpha
    )
    assert found.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@few
@given(samples(), kernels())
def test_it_vanishes_at_the_reference_itself(reference, kernel):
    scale = reference.embed(kernel).energy.abs().item() + 1.0
    found = mmd2(reference.atoms, reference.normalised_weights, reference.embed(kernel)).item()
    assert abs(found) < 1e-12 * scale


@some
@given(st.one_of(samples(dim=2), gaussians(2)), clouds(dim=2), rng_seeds)
def test_it_is_not_negative(reference, z, rng_seed):
    kernel = Octaves(0.5, 3) + Polynomial(2, 2.0)
    w = normal(z.shape[0], rng_seed=rng_seed)
    found = mmd2(z, w, reference.embed(kernel)).item()
    assert found >= -1e-11 * (1.0 + w.abs().sum().item() ** 2 * kernel.diagonal(z).max().item())


@few
@given(samples(dim=2), kernels(), clouds(dim=2), rng_seeds)
def test_it_does_not_see_the_order_of_the_nodes(reference, kernel, z, rng_seed):
    w = normal(z.shape[0], rng_seed=rng_seed)
    order = torch.as_tensor(np.random.default_rng(rng_seed).permutation(len(w)))
    embedding = reference.embed(kernel)
    assert torch.allclose(mmd2(z, w, embedding), mmd2(z[order], w[order], embedding), rtol=1e-9, atol=1e-9)


@few
@given(samples(dim=2), kernels(), clouds(dim=2), st.floats(-2.0, 2.0))
def test_it_does_not_see_a_node_split_in_two(reference, kernel, z, share):
    w = normal(z.shape[0])
    split = torch.cat([w[:-1], w[-1:] * share, w[-1:] * (1.0 - share)])
    embedding = reference.embed(kernel)
    before, after = mmd2(z, w, embedding), mmd2(torch.cat([z, z[-1:]]), split, embedding)
    assert torch.allclose(before, after, rtol=1e-8, atol=1e-8)


@few
@given(samples(dim=3), clouds(dim=3), rng_seeds, st.floats(0.1, 10.0))
def test_rotating_shifting_and_scaling_everything_changes_nothing(reference, z, rng_seed, factor):
    rotation, shift = torch.linalg.qr(normal(3, 3, rng_seed=rng_seed))[0], normal(3, rng_seed=rng_seed)
    w = normal(z.shape[0], rng_seed=rng_seed)
    moved = Samples(factor * reference.atoms @ rotation + shift, reference.weights)
    before = mmd2(z, w, reference.embed(Octaves(0.5, 3)))
    after = mmd2(factor * z @ rotation + shift, w, moved.embed(Octaves(0.5 * factor, 3)))
    assert torch.allclose(before, after, rtol=1e-8, atol=1e-10)


@few
@given(samples(dim=2), kernels(), kernels(), clouds(dim=2))
def test_the_discrepancy_of_a_sum_of_kernels_is_the_sum(reference, first, second, z):
    w = normal(z.shape[0])
    parts = mmd2(z, w, reference.embed(first)) + 2.0 * mmd2(z, w, reference.embed(second))
    assert torch.allclose(mmd2(z, w, reference.embed(first + 2.0 * second)), parts, rtol=1e-9, atol=1e-9)


@few
@given(samples(dim=2), kernels(), clouds(dim=2), rng_seeds)
def test_the_witness_has_the_discrepancy_for_norm(reference, kernel, z, rng_seed):
    w = normal(z.shape[0], rng_seed=rng_seed)
    embedding, alpha = reference.embed(kernel), reference.normalised_weights
    at_atoms, at_nodes = (witness(points, z, w, embedding) for points in (reference.atoms, z))
    assert torch.allclose((alpha * at_atoms).sum() - (w * at_nodes).sum(), mmd2(z, w, embedding), rtol=1e-8, atol=1e-9)


def test_the_witness_is_flat_across_nodes_of_fixed_total_optimal_weights():
    # the multiplier of the total is the one value that is left at every node
    embedding = Gaussian(torch.zeros(2).double(), torch.eye(2).double()).embed(SquaredExponential(0.7))
    z = normal(5, 2)
    at_nodes = witness(z, z, optimal_weights(z, embedding, jitter=0.0), embedding)
    assert torch.allclose(at_nodes, at_nodes[0].expand(5), atol=1e-10)


@few
@given(samples(dim=2), clouds(dim=2))
def test_it_bounds_the_error_of_every_function_of_the_space(reference, z):
    # f = k(., a) has unit norm
    kernel, w = SquaredExponential(0.8), torch.full((z.shape[0],), 1.0 / z.shape[0]).double()
    a = normal(4, 2)
    error = kernel(a, z) @ w - kernel(a, reference.atoms) @ reference.normalised_weights
    assert bool((error.square() <= mmd2(z, w, reference.embed(kernel)) + 1e-12).all())


def test_loss_is_the_discrepancy_without_its_constant():
    embedding = Samples(normal(20, 2)).embed(Octaves(0.5, 3))
    z, w = normal(3, 5, 2, rng_seed=1), normal(3, 5)
    rest = mmd2(z, w, embedding) - loss(embedding.kernel.gram(z), embedding.mean(z), w)
    assert torch.allclose(rest, embedding.energy.expand(3))


def test_the_mean_over_draws_is_one_minus_energy_over_m():
    reference = Gaussian(torch.zeros(2).double(), torch.eye(2).double())
    embedding, m, repeats = reference.embed(SquaredExponential(0.5)), 7, 4000
    generator = torch.Generator().manual_seed(5)
    z = torch.stack([reference.sample(m, generator=generator) for _ in range(repeats)])
    scores = mmd2(z, torch.full((repeats, m), 1.0 / m).double(), embedding)
    assert abs(scores.mean() - (1.0 - embedding.energy) / m) < 5 * scores.std() / repeats**0.5


def test_single_precision_nodes_are_scored_in_double():
    draws = normal(300, 2).float()
    embedding = Samples(draws).embed(SquaredExponential(1.0))
    z = draws[:16]
    w = optimal_weights(z.double(), embedding)
    exact = mmd2(z.double(), w, embedding).item()
    assert mmd2(z, w.float(), embedding).item() == pytest.approx(exact, rel=1e-2, abs=1e-9)


def test_it_is_differentiable_in_nodes_and_weights():
    embedding = Samples(normal(9, 2)).embed(Octaves(0.5, 3) + Polynomial(2, 2.0))
    z, w = normal(4, 2, rng_seed=1).requires_grad_(), normal(4, rng_seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: mmd2(a, b, embedding), (z, w))
