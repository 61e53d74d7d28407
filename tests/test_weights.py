import numpy as np
import oracles
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import bandwidths, clouds, few, kernels, rng_seeds, samples, some

from amsip import Gaussian, NumericalError, Octaves, Polynomial, Samples, SquaredExponential, mmd2
from amsip.weights import (
    mean_shift_weights,
    optimal_weights,
    simplex_weights,
    uniform_weights,
    unit_sum_weights,
    weight_report,
)


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def standard(d):
    return Gaussian(torch.zeros(d).double(), torch.eye(d).double())


def gram_and_mean(z, embedding):
    return embedding.kernel.gram(z).numpy(), embedding.mean(z).numpy()


@some
@given(clouds(low=2, high=6, dim=3), bandwidths, st.floats(0.5, 3.0))
def test_fixed_total_weights_solve_the_lagrangian(z, h, total):
    embedding = standard(3).embed(SquaredExponential(h))
    gram, mean = gram_and_mean(z, embedding)
    assume(np.linalg.cond(gram) < 1e6)
    expected = oracles.kkt_weights(gram, mean, np.ones((len(z), 1)), np.array([total]))
    assert np.allclose(optimal_weights(z, embedding, total=total, jitter=0.0), expected, rtol=1e-7, atol=1e-9)


@some
@given(clouds(low=1, high=6, dim=3), bandwidths)
def test_free_total_weights_solve_the_normal_equations(z, h):
    embedding = standard(3).embed(SquaredExponential(h))
    gram, mean = gram_and_mean(z, embedding)
    assume(np.linalg.cond(gram) < 1e6)
    found = optimal_weights(z, embedding, total=None, jitter=0.0)
    assert np.allclose(found, np.linalg.solve(gram, mean), rtol=1e-7, atol=1e-9)


@some
@given(samples(dim=2), kernels(), clouds(low=1, high=9, dim=2), rng_seeds)
def test_no_weights_of_the_same_total_are_better(reference, kernel, z, rng_seed):
    embedding = reference.embed(kernel)
    best = optimal_weights(z, embedding)
    others = normal(5, z.shape[0], rng_seed=rng_seed)
    others = torch.cat([uniform_weights(z)[None], others - (others.sum(-1, keepdim=True) - 1.0) / z.shape[0]])
    least = mmd2(z, best, embedding).item()
    # the ridge may cost what it charges for the weights: jitter times their square
    slack = 1e-8 * (1.0 + kernel.gram(z).diagonal().mean().item())
    assert best.sum().item() == pytest.approx(1.0, abs=1e-8 * (1 + best.abs().max().item()))
    for w in others:
        assert least <= mmd2(z, w, embedding).item() + slack * (1.0 + w.square().sum().item())


@some
@given(samples(low=3, dim=2), st.integers(0, 2), st.floats(0.5, 2.0))
def test_exactness_holds_for_every_polynomial_of_the_degree(reference, degree, total):
    embedding = reference.embed(Octaves(0.5, 4))
    z = normal(11, 2, rng_seed=degree)
    w = optimal_weights(z, embedding, exact=degree, total=total)
    mean, cov = reference.moments()
    scale = 1e-8 * (1.0 + w.abs().sum())
    assert (w.sum() - total).abs() < scale
    if degree >= 1:
        assert bool((((w[:, None] * z).sum(0) - total * mean).abs() < scale * (1 + z.abs().max())).all())
    if degree == 2:
        centred = z - mean
        second = (w[:, None] * centred).mT @ centred
        assert bool(((second - total * cov).abs() < scale * (1 + z.square().max())).all())


def test_exact_weights_solve_the_lagrangian_of_all_constraints():
    z, embedding = normal(7, 2), standard(2).embed(Octaves(0.5, 3))
    gram, mean = gram_and_mean(z, embedding)
    columns = [np.ones(7), z[:, 0], z[:, 1], z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 1] ** 2]
    expected = oracles.kkt_weights(gram, mean, np.stack(columns, -1), np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0]))
    assert np.allclose(optimal_weights(z, embedding, exact=2, jitter=0.0), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_exactness_does_not_mind_units(scale):
    reference, z = Samples(scale * normal(50, 2)), scale * normal(9, 2, rng_seed=1)
    w = optimal_weights(z, reference.embed(Octaves(0.5 * scale, 4)), exact=2)
    assert torch.allclose((w[:, None] * z).sum(0), reference.moments()[0], rtol=1e-7, atol=1e-7 * scale)


def test_exactness_with_a_constant_coordinate_drops_the_redundant_constraint():
    atoms = torch.cat([normal(40, 1), torch.full((40, 1), 2.5).double()], -1)
    w = optimal_weights(atoms[:9], Samples(atoms).embed(Octaves(0.5, 4)), exact=2)
    assert torch.allclose((w[:, None] * atoms[:9]).sum(0), atoms.mean(0), atol=1e-8)


def test_exactness_out_of_reach_is_refused():
    embedding = standard(1).embed(SquaredExponential(1.0))
    with pytest.raises(NumericalError, match="within reach of the nodes"):
        optimal_weights(torch.full((5, 1), 3.0).double(), embedding, exact=1)


def test_too_few_nodes_for_the_constraints_are_refused():
    with pytest.raises(ValueError, match="needs at least 6 nodes: got 5"):
        optimal_weights(normal(5, 2), standard(2).embed(SquaredExponential(1.0)), exact=2)
    with pytest.raises(ValueError, match="needs a fixed `total`"):
        optimal_weights(normal(5, 2), standard(2).embed(SquaredExponential(1.0)), exact=1, total=None)
    with pytest.raises(ValueError, match="`exact` must be one of"):
        optimal_weights(normal(5, 2), standard(2).embed(SquaredExponential(1.0)), exact=3)


@some
@given(clouds(low=1, high=6, dim=2), bandwidths, st.floats(0.5, 3.0))
def test_simplex_weights_are_the_best_of_all_supports(z, h, total):
    embedding = standard(2).embed(SquaredExponential(h))
    gram, mean = gram_and_mean(z, embedding)
    assume(np.linalg.cond(gram) < 1e5)
    found = simplex_weights(z, embedding, total=total, jitter=0.0)
    expected = oracles.simplex_weights(gram, mean, total)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-8)


@some
@given(samples(low=2, dim=2), clouds(low=1, high=11, dim=2), kernels(), st.floats(0.1, 5.0))
def test_simplex_weights_are_feasible_and_stationary(reference, z, kernel, total):
    embedding = reference.embed(kernel)
    w = simplex_weights(z, embedding, total=total)
    assert bool((w >= 0).all())
    assert w.sum().item() == pytest.approx(total, rel=1e-9)
    gram = kernel.gram(z)
    slope = gram @ w - embedding.mean(z) + 1e-10 * gram.diagonal().mean() * w
    level = slope[w > 0].mean()
    scale = 1e-8 * (gram.diagonal().max() * total + embedding.mean(z).abs().max())
    assert bool(((slope[w > 0] - level).abs() <= scale).all())
    assert bool((slope >= level - scale).all())


@few
@given(samples(low=2, dim=2), clouds(low=1, high=9, dim=2), kernels())
def test_simplex_weights_lie_between_equal_and_signed_ones(reference, z, kernel):
    embedding = reference.embed(kernel)
    candidates = (optimal_weights(z, embedding), simplex_weights(z, embedding), uniform_weights(z))
    signed, simplex, equal = (mmd2(z, w, embedding).item() for w in candidates)
    slack = 1e-7 * (1.0 + kernel.gram(z).diagonal().max().item())
    assert signed <= simplex + slack
    assert simplex <= equal + slack


def test_simplex_weights_of_duplicated_nodes_share_the_mass():
    z = normal(6, 2).repeat(3, 1)
    embedding = standard(2).embed(SquaredExponential(1.0))
    w, single = simplex_weights(z, embedding), simplex_weights(z[:6], embedding)
    assert bool((w >= 0).all())
    assert torch.allclose(mmd2(z, w, embedding), mmd2(z[:6], single, embedding), atol=1e-8)


def test_simplex_weights_of_many_nodes_settle():
    draws = normal(2000, 2)
    embedding = Samples(draws).embed(Octaves(0.35, 5) + 3.0 * Polynomial(2, 2.0))
    z = torch.stack([draws[:64], draws[64:128]])
    w = simplex_weights(z, embedding)
    assert bool((w >= 0).all())
    assert bool((mmd2(z, w, embedding) <= mmd2(z, uniform_weights(z), embedding)).all())


def test_simplex_weights_are_differentiable():
    embedding = standard(2).embed(SquaredExponential(1.0))
    z = normal(5, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mmd2(x, simplex_weights(x, embedding, jitter=1e-6), embedding), (z,))


@few
@given(clouds(low=1, high=6, dim=2), bandwidths)
def test_mean_shift_weights_are_the_free_weights_rescaled(z, h):
    embedding = standard(2).embed(SquaredExponential(h))
    gram, mean = gram_and_mean(z, embedding)
    assume(np.linalg.cond(gram) < 1e6)
    free = np.linalg.solve(gram, mean)
    assume(free.sum() > 1e-3)
    assert np.allclose(mean_shift_weights(z, embedding, jitter=0.0), free / free.sum(), rtol=1e-6, atol=1e-9)


def test_one_node_carries_everything():
    embedding = standard(2).embed(SquaredExponential(1.0))
    for weights in (optimal_weights, simplex_weights, mean_shift_weights):
        assert weights(normal(1, 2), embedding).item() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("solve", [optimal_weights, simplex_weights, mean_shift_weights])
def test_queries_are_solved_apart(solve):
    atoms, z = normal(3, 40, 2), normal(3, 5, 2, rng_seed=1)
    together = solve(z, Samples(atoms).embed(Octaves(0.5, 3)))
    for i in range(3):
        assert torch.allclose(together[i], solve(z[i], Samples(atoms[i]).embed(Octaves(0.5, 3))), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("solve", [optimal_weights, simplex_weights, mean_shift_weights])
@pytest.mark.parametrize("kernel", [SquaredExponential(2.0), Octaves(0.35, 5) + 3.0 * Polynomial(2, 2.0)])
def test_single_precision_nodes_get_the_weights_of_double_ones(solve, kernel):
    draws = normal(500, 2).float()
    single = solve(draws[:16], Samples(draws).embed(kernel))
    double = solve(draws[:16].double(), Samples(draws.double()).embed(kernel))
    assert single.dtype == torch.float32
    # the kernel is nearly singular on 16 nodes: what must agree is what the weights are for
    exact = Samples(draws.double()).embed(kernel)
    scores = [mmd2(draws[:16].double(), w.double() / w.double().sum(), exact).item() for w in (single, double)]
    assert scores[0] == pytest.approx(scores[1], rel=2e-2, abs=1e-9)


@pytest.mark.parametrize("solve", [optimal_weights, mean_shift_weights])
def test_weights_are_differentiable(solve):
    embedding = standard(2).embed(SquaredExponential(1.0))
    z = normal(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: solve(x, embedding, jitter=1e-6), (z,))


def test_exact_weights_are_differentiable():
    embedding = standard(2).embed(SquaredExponential(1.0))
    z = normal(8, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: optimal_weights(x, embedding, exact=2, jitter=1e-4), (z,), atol=1e-4)


def test_unit_sum_weights_are_optimal_weights():
    z, embedding = normal(5, 2), standard(2).embed(SquaredExponential(0.7))
    assert torch.allclose(unit_sum_weights(embedding.kernel.gram(z), embedding.mean(z)), optimal_weights(z, embedding))


def test_mean_shift_weights_without_mass_are_refused():
    # far from the reference its kernel mean underflows: nothing to rescale
    embedding = standard(1).embed(SquaredExponential(0.1))
    with pytest.raises(NumericalError, match="positive sum"):
        mean_shift_weights(torch.full((2, 1), 1e3).double() + normal(2, 1), embedding)


@few
@given(clouds(low=2, high=8, dim=2), bandwidths)
def test_the_report_tells_size_sign_and_conditioning(z, h):
    kernel = SquaredExponential(h)
    w = optimal_weights(z, standard(2).embed(kernel))
    report = weight_report(z, w, kernel, jitter=1e-6)
    ridged = kernel.gram(z).numpy() + 1e-6 * np.eye(len(z))
    assert report.condition.item() == pytest.approx(np.linalg.cond(ridged), rel=1e-6)
    assert report.ess.item() == pytest.approx(w.sum().item() ** 2 / sum(v * v for v in w.tolist()), rel=1e-9)
    assert report.negative_share.item() == sum(v < 0 for v in w.tolist()) / len(w)
    assert report.jitter == 1e-6


def test_equal_weights_have_full_effective_size():
    assert weight_report(
        normal(7, 2), uniform_weights(normal(7, 2)), SquaredExponential(1.0)
    ).ess.item() == pytest.approx(7)
