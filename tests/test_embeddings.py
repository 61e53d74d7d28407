import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import few, gaussians, kernels, mixtures, rng_seeds, samples

from amsip import (
    Gaussian,
    InverseMultiquadric,
    Matern,
    Mixture,
    Octaves,
    Polynomial,
    Samples,
    SquaredExponential,
    Whitened,
    Whitening,
    _linalg,
)
from amsip.defaults import default_kernel
from amsip.references import embeddings

MEANS = np.array([[-1.0, 0.5], [1.5, -0.5]])
COVS = np.array([[[0.6, 0.2], [0.2, 0.4]], [[0.3, -0.1], [-0.1, 0.8]]])
SHARES = np.array([0.3, 0.7])
CLOSED_FORM = [
    (SquaredExponential(0.8), lambda x, z: oracles.squared_exponential(x, z, 0.8)),
    (Octaves(0.5, 3, (1.0, 2.0, 1.0)), lambda x, z: oracles.octaves(x, z, 0.5, 3, (1.0, 2.0, 1.0))),
    (Polynomial(1, 2.0), lambda x, z: oracles.polynomial(x, z, 1, 2.0)),
    (Polynomial(2, 2.0), lambda x, z: oracles.polynomial(x, z, 2, 2.0)),
    (
        Octaves(0.5, 2) + 3.0 * Polynomial(2, 2.0),
        lambda x, z: oracles.octaves(x, z, 0.5, 2) + 3.0 * oracles.polynomial(x, z, 2, 2.0),
    ),
]


def name(value):
    return repr(value) if hasattr(value, "gram") else ""


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def mixture():
    return Mixture(*(torch.as_tensor(part) for part in (SHARES, MEANS, COVS)))


@pytest.mark.parametrize(("kernel", "oracle"), CLOSED_FORM, ids=name)
def test_mixture_mean_is_its_gauss_hermite_integral(kernel, oracle):
    z = normal(3, 2)
    found = mixture().embed(kernel).mean(z)
    expected = [oracles.mixture_expectation(lambda x, p=p: oracle(x, p), SHARES, MEANS, COVS, 44) for p in z.numpy()]
    assert np.allclose(found.numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize(("kernel", "oracle"), CLOSED_FORM, ids=name)
def test_gaussian_mean_is_its_gauss_hermite_integral(kernel, oracle):
    z = normal(3, 2)
    found = Gaussian(torch.as_tensor(MEANS[0]), torch.as_tensor(COVS[0])).embed(kernel).mean(z)
    expected = [oracles.gauss_hermite(lambda x, p=p: oracle(x, p), MEANS[0], COVS[0], 44) for p in z.numpy()]
    assert np.allclose(found.numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize(("kernel", "oracle"), CLOSED_FORM[:2], ids=name)
def test_mixture_energy_is_its_gauss_hermite_integral(kernel, oracle):
    expected = oracles.mixture_energy(lambda gap: oracle(gap, np.zeros(2)), SHARES, MEANS, COVS, 80)
    assert mixture().embed(kernel).energy.item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("degree", [1, 2])
def test_polynomial_energy_is_the_expected_kernel_of_two_draws(degree):
    embedding = mixture().embed(Polynomial(degree, 2.0))
    expected = oracles.mixture_expectation(
        lambda x: embedding.mean(torch.as_tensor(x)[None]).item(), SHARES, MEANS, COVS, 12
    )
    assert embedding.energy.item() == pytest.approx(expected, rel=1e-10)


@few
@given(samples(dim=2), kernels(), rng_seeds)
def test_sample_mean_and_energy_are_sums_over_atoms(reference, kernel, rng_seed):
    z = normal(4, 2, rng_seed=rng_seed)
    embedding, alpha = reference.embed(kernel), reference.normalised_weights
    table = kernel(z, reference.atoms)
    assert np.allclose(embedding.mean(z), [sum(a * k for a, k in zip(alpha, row, strict=True)) for row in table])
    square = kernel(reference.atoms, reference.atoms)
    assert embedding.energy.item() == pytest.approx((alpha @ square @ alpha).item(), rel=1e-9, abs=1e-12)


@few
@given(st.one_of(samples(dim=2), gaussians(2), mixtures(2)), rng_seeds)
def test_gradients_are_finite_differences_of_the_mean(reference, rng_seed):
    z = normal(1, 2, rng_seed=rng_seed)
    chart = Whitening.of_moments(normal(2, rng_seed=rng_seed), torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double())
    for kernel in (Octaves(0.6, 3) + 0.5 * Polynomial(2, 2.0), Whitened(Octaves(0.6, 3), chart)):
        embedding = reference.embed(kernel)
        value, grad = embedding.mean_and_grad(z)
        assert torch.allclose(value, embedding.mean(z), rtol=1e-12)
        for i, point in enumerate(z.numpy()):
            slope = oracles.gradient(lambda p, e=embedding: e.mean(torch.as_tensor(p)[None]).item(), point)
            assert np.allclose(grad[i].numpy(), slope, rtol=1e-6, atol=1e-8)


@few
@given(mixtures(2), rng_seeds)
def test_closed_form_embeddings_agree_with_many_draws(reference, rng_seed):
    draws = Samples(reference.sample(20_000, generator=torch.Generator().manual_seed(rng_seed)))
    z = normal(3, 2, rng_seed=rng_seed)
    kernel = SquaredExponential(1.0)
    # a mean of 20,000 values of spread below 1/2
    assert (draws.embed(kernel).mean(z) - reference.embed(kernel).mean(z)).abs().max() < 5 * 0.5 / 20_000**0.5


@few
@given(st.one_of(samples(low=3, dim=2), gaussians(2), mixtures(2)), rng_seeds)
def test_a_whitened_embedding_is_that_of_the_whitened_reference(reference, rng_seed):
    kernel = default_kernel(reference)
    z = normal(4, 2, rng_seed=rng_seed)
    outer = reference.embed(kernel)
    inner = reference.whiten(kernel.whitening).embed(kernel.kernel)
    assert torch.allclose(outer.mean(z), inner.mean(kernel.whitening.forward(z)), rtol=1e-9)
    assert torch.allclose(outer.energy, inner.energy, rtol=1e-9)
    assert all(torch.equal(a, b) for a, b in zip(outer.moments, reference.moments(), strict=True))


@few
@given(kernels(), st.data())
def test_the_energy_of_one_atom_is_the_diagonal_of_the_kernel(kernel, data):
    reference = data.draw(samples(1, 1))
    assert torch.allclose(reference.embed(kernel).energy, kernel.diagonal(reference.atoms)[0], rtol=1e-9)


@few
@given(samples(low=2), kernels(), st.data())
def test_splitting_an_atom_changes_nothing(reference, kernel, data):
    share = data.draw(st.floats(0.05, 0.95))
    alpha = reference.normalised_weights
    split = torch.cat([alpha[:-1], alpha[-1:] * share, alpha[-1:] * (1.0 - share)])
    doubled = Samples(torch.cat([reference.atoms, reference.atoms[-1:]]), split)
    z = reference.atoms[:3] + 0.1
    first, second = reference.embed(kernel), doubled.embed(kernel)
    assert torch.allclose(first.mean(z), second.mean(z), rtol=1e-9, atol=1e-12)
    assert torch.allclose(first.energy, second.energy, rtol=1e-9, atol=1e-12)


@few
@given(gaussians(), rng_seeds)
def test_a_gaussian_is_a_mixture_of_one(reference, rng_seed):
    same = Mixture(torch.ones(1).double(), reference.mean[None], reference.cov[None])
    z = normal(4, reference.dim, rng_seed=rng_seed)
    first, second = (r.embed(Octaves(0.7, 3) + Polynomial(2)) for r in (reference, same))
    assert torch.allclose(first.mean_and_grad(z)[1], second.mean_and_grad(z)[1], rtol=1e-10, atol=1e-14)
    assert torch.allclose(first.energy, second.energy, rtol=1e-10)


def test_a_gaussian_shrinking_to_a_point_has_the_kernel_for_mean():
    z = normal(3, 2)
    tiny = Gaussian(torch.zeros(2).double(), 1e-12 * torch.eye(2).double())
    kernel = SquaredExponential(0.7)
    assert torch.allclose(tiny.embed(kernel).mean(z), kernel(z, torch.zeros(1, 2).double())[:, 0], rtol=1e-9)


@pytest.mark.parametrize("kernel", [Matern(1.0), InverseMultiquadric(1.0)], ids=name)
def test_kernels_without_a_closed_form_name_the_remedy(kernel):
    with pytest.raises(ValueError, match="embed draws of it instead"):
        mixture().embed(kernel)


@pytest.mark.parametrize(
    "kernel", [SquaredExponential(0.8), Octaves(0.5, 3), InverseMultiquadric(0.7), Matern(0.9)], ids=name
)
@pytest.mark.parametrize("block", [262_144, 10])
def test_atoms_are_differentiated_to_second_order_in_one_block_or_many(monkeypatch, kernel, block):
    monkeypatch.setattr(_linalg, "BLOCK_ENTRIES", block)
    monkeypatch.setattr(_linalg, "RECORDED_ENTRIES", block)
    embedding = Samples(normal(2, 5, 2)).embed(kernel)
    z = normal(2, 2, 2, rng_seed=1).requires_grad_()
    assert torch.autograd.gradcheck(embedding.mean, (z,))
    assert torch.autograd.gradgradcheck(embedding.mean, (z,))
    assert torch.autograd.gradcheck(embedding.mean_and_grad, (z,))
    assert torch.autograd.gradgradcheck(embedding.mean_and_grad, (z,))


@pytest.mark.parametrize(
    "reference", [mixture(), Gaussian(torch.zeros(2).double(), torch.eye(2).double())], ids=["m", "g"]
)
def test_closed_forms_are_differentiable_to_second_order(reference):
    embedding = reference.embed(Octaves(0.7, 2) + Polynomial(2, 2.0))
    z = normal(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(embedding.mean_and_grad, (z,))
    assert torch.autograd.gradgradcheck(embedding.mean, (z,))


def test_atoms_and_their_weights_are_differentiable():
    kernel, z = Octaves(0.7, 2), normal(3, 2)

    def mean(atoms, weights):
        moments = (atoms.mean(0), torch.eye(2).double())
        return embeddings.AtomsEmbedding(kernel, moments, atoms, weights).mean_and_grad(z)

    atoms, weights = normal(5, 2, rng_seed=1), normal(5, rng_seed=2)
    assert torch.autograd.gradcheck(mean, (atoms.requires_grad_(), weights.requires_grad_()))


def test_a_bandwidth_being_learned_is_reached_through_the_mean():
    h = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    atoms, z = normal(9, 2), normal(3, 2, rng_seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda b, x: Samples(atoms).embed(SquaredExponential(b)).mean(x), (h, z))


@pytest.mark.parametrize("kernel", [SquaredExponential(1.0), Octaves(0.5, 3) + Polynomial(2)], ids=name)
def test_extra_leading_axes_of_nodes_share_the_embedding(monkeypatch, kernel):
    references = [
        Samples(normal(3, 11, 2)),
        Samples(normal(11, 2)),
        Gaussian(normal(3, 2), torch.eye(2).double().expand(3, 2, 2)),
        mixture(),
    ]
    z = normal(5, 3, 4, 2, rng_seed=1)
    monkeypatch.setattr(_linalg, "BLOCK_ENTRIES", 100)
    monkeypatch.setattr(_linalg, "RECORDED_ENTRIES", 100)
    for reference in references:
        embedding = reference.embed(kernel)
        value, grad = embedding.mean_and_grad(z)
        for i in range(5):
            single = embedding.mean_and_grad(z[i])
            assert torch.allclose(value[i], single[0], rtol=1e-11)
            assert torch.allclose(grad[i], single[1], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    "make", [lambda: Samples(normal(11, 2)), mixture, lambda: Gaussian(normal(2), torch.eye(2).double())]
)
def test_a_bandwidth_per_query_embeds_one_reference_three_ways(make):
    h, z = torch.tensor([0.5, 1.0, 2.0]).double(), normal(3, 4, 2, rng_seed=1)
    reference = make()
    for kind in (SquaredExponential, Octaves):
        embedding = reference.embed(kind(h))
        for i in range(3):
            single = reference.embed(kind(h[i].item()))
            assert torch.allclose(embedding.mean(z)[i], single.mean(z[i]), rtol=1e-10)
            assert torch.allclose(embedding.mean_and_grad(z)[1][i], single.mean_and_grad(z[i])[1], rtol=1e-9)
            assert torch.allclose(embedding.energy.expand(3)[i], single.energy, rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Samples(normal(11, 2), torch.arange(1.0, 12.0)),
        mixture,
        lambda: Gaussian(normal(2), torch.eye(2).double()),
    ],
)
def test_a_chart_per_query_embeds_one_reference_three_ways(make):
    reference, z = make(), normal(3, 4, 2, rng_seed=1)
    chart = Whitening.of_samples(normal(3, 50, 2) * torch.tensor([1.0, 4.0, 0.3])[:, None, None])
    embedding = reference.embed(Whitened(Octaves(0.5, 2) + Polynomial(2, 2.0), chart))
    for i in range(3):
        single = Whitening(chart.centre[i], chart.root[i], chart.inverse_root[i])
        alone = reference.embed(Whitened(Octaves(0.5, 2) + Polynomial(2, 2.0), single))
        assert torch.allclose(embedding.mean(z)[i], alone.mean(z[i]), rtol=1e-9)
        assert torch.allclose(embedding.mean_and_grad(z)[1][i], alone.mean_and_grad(z[i])[1], rtol=1e-8, atol=1e-11)
        assert torch.allclose(embedding.energy[i], alone.energy, rtol=1e-9)


def test_double_nodes_read_single_precision_atoms_exactly():
    atoms = normal(50, 3).float()
    z = normal(4, 3, rng_seed=1)
    mean = Samples(atoms).embed(SquaredExponential(0.5)).mean(z)
    expected = oracles.kernel_mean(
        lambda a, b: oracles.squared_exponential(a, b, 0.5),
        z.numpy(),
        atoms.double().numpy(),
        np.full(50, float(np.float32(0.02))),
    )
    assert mean.dtype == torch.float64
    assert np.allclose(mean.numpy(), expected, rtol=1e-12)


def test_energy_is_double_and_lazy():
    reference = Samples(normal(2000, 2).float())
    embedding = reference.embed(SquaredExponential(0.5))
    assert "energy" not in embedding.__dict__
    exact = Samples(reference.atoms.double()).embed(SquaredExponential(0.5)).energy
    assert embedding.energy.dtype == torch.float64
    assert embedding.energy.item() == pytest.approx(exact.item(), rel=1e-6)


def test_energy_in_blocks_is_the_double_sum(monkeypatch):
    reference = Samples(normal(2, 53, 2), torch.rand(2, 53, generator=torch.Generator().manual_seed(0)).double() + 0.1)
    whole = reference.embed(Octaves(0.5, 3)).energy
    monkeypatch.setattr(_linalg, "BLOCK_ENTRIES", 2048)
    monkeypatch.setattr(_linalg, "RECORDED_ENTRIES", 2048)
    monkeypatch.setattr(embeddings, "ENERGY_ROWS", 16)
    assert torch.allclose(reference.embed(Octaves(0.5, 3)).energy, whole, rtol=1e-12)
