import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import bandwidths, clouds, dims, few, kernels, radial_kernels, rng_seeds, shares, some

from amsip import InverseMultiquadric, Matern, Octaves, Polynomial, SquaredExponential, Whitened, Whitening

PAIRS = [
    (SquaredExponential(0.7), lambda x, z: oracles.squared_exponential(x, z, 0.7)),
    (Octaves(0.3, 5), lambda x, z: oracles.octaves(x, z, 0.3, 5)),
    (Octaves(0.4, 3, (1.0, 4.0, 2.0)), lambda x, z: oracles.octaves(x, z, 0.4, 3, (1.0, 4.0, 2.0))),
    (Matern(1.3, 0.5), lambda x, z: oracles.matern(x, z, 1.3, 0.5)),
    (Matern(1.3, 1.5), lambda x, z: oracles.matern(x, z, 1.3, 1.5)),
    (Matern(1.3, 2.5), lambda x, z: oracles.matern(x, z, 1.3, 2.5)),
    (InverseMultiquadric(0.6), lambda x, z: oracles.inverse_multiquadric(x, z, 0.6)),
    (Polynomial(1, 3.0), lambda x, z: oracles.polynomial(x, z, 1, 3.0)),
    (Polynomial(2, 3.0), lambda x, z: oracles.polynomial(x, z, 2, 3.0)),
]
RADIAL = [pair for pair in PAIRS if not isinstance(pair[0], Polynomial) and getattr(pair[0], "smoothness", 2) > 0.5]
ANALYTIC = [kernel for kernel, _ in RADIAL if not isinstance(kernel, Matern)]


def name(value):
    return repr(value) if not callable(value) or hasattr(value, "gram") else ""


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


@pytest.mark.parametrize(("kernel", "oracle"), PAIRS, ids=name)
def test_values_are_those_of_the_written_out_formula(kernel, oracle):
    x, z = normal(5, 3), normal(7, 3, rng_seed=1)
    assert np.allclose(kernel(x, z).numpy(), oracles.gram(oracle, x.numpy(), z.numpy()), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("kernel", "oracle"), PAIRS, ids=name)
def test_gram_and_diagonal_are_the_kernel_with_itself(kernel, oracle):
    x = normal(5, 3)
    expected = oracles.gram(oracle, x.numpy(), x.numpy())
    assert np.allclose(kernel.gram(x).numpy(), expected, rtol=1e-12, atol=1e-14)
    assert np.allclose(kernel.diagonal(x).numpy(), np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize(("kernel", "oracle"), RADIAL + PAIRS[-2:], ids=name)
def test_gradient_of_a_weighted_sum_is_its_finite_difference(kernel, oracle):
    x, y, w = normal(2, 3), normal(7, 3, rng_seed=1), normal(7, rng_seed=2)
    value, grad = kernel.weighted_sum_and_grad(x, y, w)

    def total(point):
        return sum(float(b) * oracle(point, a) for a, b in zip(y.numpy(), w.numpy(), strict=True))

    assert np.allclose(value.numpy(), [total(p) for p in x.numpy()], rtol=1e-12)
    assert np.allclose(grad.numpy(), [oracles.gradient(total, p) for p in x.numpy()], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("kernel", "oracle"), RADIAL, ids=name)
def test_shadow_is_the_gradient_over_the_difference(kernel, oracle):
    x, z = normal(1, 3)[0], normal(1, 3, rng_seed=1)[0]
    slope = oracles.gradient(lambda p: oracle(p, z.numpy()), x.numpy())
    shadow = kernel.shadow(x[None], z[None]).item()
    assert np.allclose(-(x - z).numpy() * shadow, slope, rtol=1e-7)


@pytest.mark.parametrize(("kernel", "oracle"), RADIAL, ids=name)
def test_second_shadow_is_the_gradient_of_the_shadow_over_the_difference(kernel, oracle):
    x, z = normal(1, 3)[0], normal(1, 3, rng_seed=1)[0]
    slope = oracles.gradient(lambda p: kernel.shadow(torch.as_tensor(p)[None], z[None]).item(), x.numpy())
    second = kernel.second_shadow((x - z).square().sum().reshape(1, 1)).item()
    assert np.allclose(-(x - z).numpy() * second, slope, rtol=1e-7)


@some
@given(radial_kernels(), clouds(dim=3), rng_seeds)
def test_hessian_product_is_the_derivative_of_the_gradient(kernel, y, rng_seed):
    x, v = normal(4, 3, rng_seed=rng_seed), normal(4, 3, rng_seed=rng_seed + 1)
    w = torch.ones(y.shape[0], dtype=torch.float64)
    step = 1e-5
    ahead, behind = (kernel.weighted_grad(x + s * step * v, y, w) for s in (1, -1))
    assert torch.allclose(
        kernel.weighted_hessian_product(x, y, w, v), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6 * len(y)
    )


@few
@given(kernels(), clouds(low=2))
def test_gram_is_symmetric_and_positive_semidefinite(kernel, x):
    gram = kernel.gram(x)
    assert torch.equal(gram, gram.mT) or torch.allclose(gram, gram.mT, rtol=1e-14)
    assert torch.linalg.eigvalsh(gram)[0] >= -1e-12 * gram.diagonal().sum()


@few
@given(kernels(), clouds(), rng_seeds)
def test_gram_follows_a_permutation_of_the_points(kernel, x, rng_seed):
    order = torch.as_tensor(np.random.default_rng(rng_seed).permutation(x.shape[0]))
    assert torch.allclose(kernel.gram(x[order]), kernel.gram(x)[order][:, order], rtol=1e-12)


@few
@given(radial_kernels(), clouds(), st.floats(-50.0, 50.0))
def test_radial_kernels_do_not_see_translations(kernel, x, shift):
    y = x.flip(0) + 0.3
    assert torch.allclose(kernel(x + shift, y + shift), kernel(x, y), rtol=1e-9, atol=1e-11)


@few
@given(kernels(), clouds(dim=3), rng_seeds)
def test_every_kernel_is_invariant_to_rotations(kernel, x, rng_seed):
    rotation = torch.linalg.qr(normal(3, 3, rng_seed=rng_seed))[0]
    y = x.flip(0) + 0.3
    assert torch.allclose(kernel(x @ rotation, y @ rotation), kernel(x, y), rtol=1e-10, atol=1e-12)


@few
@given(bandwidths, st.floats(0.1, 10.0), clouds())
def test_scaling_points_and_bandwidth_together_changes_nothing(h, factor, x):
    for kind in (SquaredExponential, Octaves, Matern, InverseMultiquadric):
        assert torch.allclose(kind(factor * h).gram(factor * x), kind(h).gram(x), rtol=1e-10, atol=1e-13)


@some
@given(bandwidths, st.integers(1, 6), clouds(), st.data())
def test_octaves_are_the_sum_of_their_components(h, count, x, data):
    kernel = Octaves(h, count, tuple(data.draw(shares(count)).tolist()))
    y, w = x.flip(0) + 0.4, torch.linspace(-1.0, 1.0, x.shape[0], dtype=torch.float64)
    value, grad = kernel.weighted_sum_and_grad(x, y, w)
    parts = [(a, *k.weighted_sum_and_grad(x, y, w)) for a, k in kernel.components()]
    assert torch.allclose(value, sum(a * v for a, v, _ in parts), rtol=1e-11, atol=1e-13)
    assert torch.allclose(grad, sum(a * g for a, _, g in parts), rtol=1e-11, atol=1e-12 / h)
    assert torch.allclose(kernel.gram(x), sum(a * k.gram(x) for a, k in kernel.components()), rtol=1e-11)
    v = torch.ones_like(x)
    product = sum(a * k.weighted_hessian_product(x, y, w, v) for a, k in kernel.components())
    assert torch.allclose(kernel.weighted_hessian_product(x, y, w, v), product, rtol=1e-10, atol=1e-11 / h**2)


def test_octaves_of_unequal_shares_are_normalised_smallest_bandwidth_first():
    kernel = Octaves(0.5, 2, (3.0, 1.0))
    assert [(a, k.bandwidth) for a, k in kernel.components()] == [(0.75, 0.5), (0.25, 1.0)]


@few
@given(kernels(), kernels(), st.floats(0.1, 9.0), clouds())
def test_sums_are_linear_in_their_terms(first, second, factor, x):
    y, w = x.flip(0) + 0.2, torch.linspace(-1.0, 2.0, x.shape[0], dtype=torch.float64)
    total = first + factor * second
    assert torch.allclose(total(x, y), first(x, y) + factor * second(x, y), rtol=1e-12)
    assert torch.allclose(total.gram(x), first.gram(x) + factor * second.gram(x), rtol=1e-12)
    assert torch.allclose(total.diagonal(x), first.diagonal(x) + factor * second.diagonal(x), rtol=1e-12)
    expected = first.weighted_sum(x, y, w) + factor * second.weighted_sum(x, y, w)
    assert torch.allclose(total.weighted_sum(x, y, w), expected, rtol=1e-11, atol=1e-13)


def test_sums_of_sums_are_flat_and_factors_multiply():
    inner = SquaredExponential(1.0) + Matern(1.0)
    outer = 3.0 * (2.0 * inner + Polynomial())
    assert [c for c, _ in outer.terms] == [6.0, 6.0, 3.0]


@few
@given(radial_kernels(), clouds(dim=2), rng_seeds)
def test_whitened_kernel_is_the_kernel_of_whitened_points(kernel, x, rng_seed):
    cov = torch.tensor([[4.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
    chart = Whitening.of_moments(normal(2, rng_seed=rng_seed), cov)
    whitened, y = Whitened(kernel, chart), x.flip(0) + 0.2
    assert torch.allclose(whitened(x, y), kernel(chart.forward(x), chart.forward(y)), rtol=1e-12)
    w = torch.ones(x.shape[0], dtype=torch.float64)
    grad = whitened.weighted_grad(x, y, w)
    point = x.clone().requires_grad_()
    whitened.weighted_sum(point, y, w).sum().backward()
    assert torch.allclose(grad, point.grad, rtol=1e-9, atol=1e-11)


def test_whitened_squared_exponential_is_the_mahalanobis_kernel():
    cov = torch.tensor([[4.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
    x, z = normal(2), normal(2, rng_seed=1)
    kernel = Whitened(SquaredExponential(1.7), Whitening.of_moments(normal(2, rng_seed=2), cov))
    gap = (x - z).numpy()
    expected = np.exp(-gap @ np.linalg.solve(cov.numpy(), gap) / (2 * 1.7**2))
    assert np.isclose(kernel(x[None], z[None]).item(), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", ANALYTIC, ids=name)
def test_autograd_agrees_to_second_order_where_points_coincide(kernel):
    y = normal(5, 2)
    x = y[:3].clone().requires_grad_()
    w = torch.tensor([0.5, -1.0, 2.0, 0.3, 0.7], dtype=torch.float64)
    slope = torch.autograd.grad(kernel.weighted_sum(x, y, w).sum(), x, create_graph=True)[0]
    assert torch.allclose(slope, kernel.weighted_grad(x, y, w), rtol=1e-9, atol=1e-11)
    v = normal(3, 2, rng_seed=4)
    bend = torch.autograd.grad((slope * v).sum(), x)[0]
    assert torch.allclose(bend, kernel.weighted_hessian_product(x.detach(), y, w, v), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernel", [k for k, _ in RADIAL], ids=name)
def test_gradcheck_of_values_and_gradients(kernel):
    x, y = normal(3, 2).requires_grad_(), normal(4, 2, rng_seed=1).requires_grad_()
    w = normal(4, rng_seed=2).requires_grad_()
    assert torch.autograd.gradcheck(kernel, (x, y))
    assert torch.autograd.gradcheck(kernel.gram, (x,))
    assert torch.autograd.gradcheck(kernel.weighted_sum_and_grad, (x, y, w))


def test_bandwidths_are_differentiable():
    x, y = normal(3, 2), normal(4, 2, rng_seed=1)
    h = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    for kind in (SquaredExponential, Octaves, Matern, InverseMultiquadric):
        assert torch.autograd.gradcheck(lambda b, kind=kind: kind(b)(x, y), (h,))


@few
@given(st.sampled_from([SquaredExponential, Octaves, Matern, InverseMultiquadric]), dims, rng_seeds)
def test_a_bandwidth_per_query_is_a_kernel_per_query(kind, d, rng_seed):
    x, y, w = normal(3, 5, d, rng_seed=rng_seed), normal(3, 7, d, rng_seed=rng_seed + 1), normal(3, 7)
    h = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    value, grad = kind(h).weighted_sum_and_grad(x, y, w)
    gram, diagonal = kind(h).gram(x), kind(h).diagonal(x)
    for i, single in enumerate(h.tolist()):
        expected = kind(single).weighted_sum_and_grad(x[i], y[i], w[i])
        assert torch.allclose(value[i], expected[0], rtol=1e-10, atol=1e-12)
        assert torch.allclose(grad[i], expected[1], rtol=1e-10, atol=1e-12)
        assert torch.allclose(gram[i], kind(single).gram(x[i]), rtol=1e-12)
        assert torch.allclose(diagonal[i], kind(single).diagonal(x[i]))


@few
@given(kernels(), rng_seeds)
def test_leading_axes_broadcast(kernel, rng_seed):
    x, y = normal(2, 3, 5, 4, rng_seed=rng_seed), normal(7, 4, rng_seed=rng_seed + 1)
    assert torch.allclose(kernel(x, y)[1, 2], kernel(x[1, 2], y), rtol=1e-10, atol=1e-12)
    assert torch.allclose(kernel(y, x)[1, 2], kernel(y, x[1, 2]), rtol=1e-10, atol=1e-12)


def test_gradients_survive_an_origin_far_away():
    x, y, w = normal(3, 2), normal(50, 2, rng_seed=1), torch.full((50,), 0.02, dtype=torch.float64)
    for kernel in (SquaredExponential(0.5), Octaves(0.2, 5)):
        near, far = (kernel.weighted_grad(x + shift, y + shift, w) for shift in (0.0, 1e6))
        assert torch.allclose(near, far, rtol=1e-5, atol=1e-7)


def test_single_precision_is_good_to_five_digits():
    x, y, w = normal(5, 3), normal(200, 3, rng_seed=1), torch.full((200,), 0.005, dtype=torch.float64)
    for kernel, _ in RADIAL:
        exact = kernel.weighted_sum_and_grad(x, y, w)
        single = kernel.weighted_sum_and_grad(x.float(), y.float(), w.float())
        for a, b in zip(exact, single, strict=True):
            assert b.dtype == torch.float32
            assert torch.allclose(a, b.double(), rtol=2e-4, atol=2e-5)


def test_identical_points_have_height_one_in_single_precision():
    x = (1e3 * normal(4, 3)).float()
    for kernel, _ in RADIAL:
        assert torch.allclose(kernel.gram(x).diagonal(), torch.ones(4), rtol=0.0, atol=2e-7)


def test_heights():
    x = normal(4, 3)
    for kernel, _ in RADIAL:
        assert torch.equal(kernel.diagonal(x), torch.ones(4, dtype=torch.float64))
        assert bool((kernel(x, normal(9, 3, rng_seed=1)) <= 1.0).all())


def test_the_roughest_matern_refuses_to_move_nodes():
    with pytest.raises(ValueError, match="no gradient"):
        Matern(1.0, 0.5).shadow(normal(2, 1), normal(2, 1))


@pytest.mark.parametrize("kind", [SquaredExponential, Octaves, Matern, InverseMultiquadric])
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), torch.tensor([1.0, 0.0])])
def test_bandwidths_must_be_positive(kind, bad):
    with pytest.raises(ValueError, match="`bandwidth` must be finite and positive"):
        kind(bad)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="`degree` must be one of"):
        Polynomial(3)
    with pytest.raises(ValueError, match="`scale` must be positive"):
        Polynomial(1, 0.0)
    with pytest.raises(ValueError, match="`smoothness` must be one of"):
        Matern(1.0, 2.0)
    with pytest.raises(ValueError, match="`shares` must have one entry per octave"):
        Octaves(1.0, 3, (1.0, 1.0))
    with pytest.raises(ValueError, match="`count` must be at least 1"):
        Octaves(1.0, 0)
    with pytest.raises(ValueError, match="`factor` must be finite and positive"):
        -1.0 * SquaredExponential(1.0)
