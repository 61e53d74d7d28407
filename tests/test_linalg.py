import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import clouds, covariances, few, rng_seeds, some

from amsip import NumericalError, _linalg


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


@some
@given(clouds(dim=3), rng_seeds)
def test_squared_distances_are_sums_of_squares(x, rng_seed):
    y = normal(5, 3, rng_seed=rng_seed)
    expected = [[sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for q in y.numpy()] for p in x.numpy()]
    assert np.allclose(_linalg.squared_distances(x, y).numpy(), expected, rtol=1e-11, atol=1e-13)
    assert bool((_linalg.squared_distances(y, y) >= 0).all())


def test_squared_distances_keep_digits_far_from_the_origin():
    x, y = normal(4, 3), normal(5, 3, rng_seed=1)
    near, far = _linalg.squared_distances(x, y), _linalg.squared_distances(x + 1e8, y + 1e8)
    assert torch.allclose(near, far, rtol=1e-6)


def test_one_wild_point_costs_the_others_no_digits():
    """Centred on a mean, 1e12 among seven points would leave nothing of distances of order one."""
    x, y = normal(4, 3), normal(7, 3, rng_seed=1)
    for row in (0, 3, 6):
        wild = y.clone()
        wild[row] = 1e12
        near, far = _linalg.squared_distances(x, y), _linalg.squared_distances(x, wild)
        others = [i for i in range(7) if i != row]
        assert torch.allclose(near[:, others], far[:, others], rtol=1e-10)


def test_pairwise_distances_are_exact_where_points_nearly_coincide():
    x = torch.tensor([[1.0, 2.0], [1.0 + 1e-12, 2.0]], dtype=torch.float64)
    assert _linalg.pairwise_squared_distances(x)[0, 1].sqrt().item() == pytest.approx(1e-12, rel=1e-3)


def test_pairwise_distances_in_pieces_are_the_same(monkeypatch):
    x = normal(2, 5, 7)
    whole = _linalg.pairwise_squared_distances(x)
    monkeypatch.setattr(_linalg, "BLOCK_ENTRIES", 10)
    monkeypatch.setattr(_linalg, "RECORDED_ENTRIES", 10)
    assert torch.allclose(_linalg.pairwise_squared_distances(x), whole, rtol=1e-14)
    assert torch.autograd.gradcheck(_linalg.pairwise_squared_distances, (x[:, :3].clone().requires_grad_(),))


def test_second_derivatives_of_distances_survive_coinciding_points():
    y = 3.0 + normal(6, 3)
    x = y[:2].clone().requires_grad_()
    slope = torch.autograd.grad(_linalg.squared_distances(x, y).sum(), x, create_graph=True)[0]
    bend = torch.autograd.grad(slope.sum(), x)[0]
    assert torch.allclose(bend, torch.full_like(bend, 2.0 * y.shape[0]))


@some
@given(covariances(5), rng_seeds)
def test_unconstrained_minimum_solves_the_normal_equations(matrix, rng_seed):
    b = normal(5, rng_seed=rng_seed)
    factor = torch.linalg.cholesky(matrix)
    assert np.allclose(_linalg.minimise_quadratic(factor, b), oracles.kkt_weights(matrix.numpy(), b.numpy()))


@some
@given(covariances(5), rng_seeds, st.integers(1, 4))
def test_constrained_minimum_solves_the_bordered_system(matrix, rng_seed, count):
    b, c, v = (normal(*shape, rng_seed=rng_seed + i) for i, shape in enumerate([(5,), (5, count), (count,)]))
    found = _linalg.minimise_quadratic(torch.linalg.cholesky(matrix), b, c, v)
    assert np.allclose(found, oracles.kkt_weights(matrix.numpy(), b.numpy(), c.numpy(), v.numpy()), rtol=1e-7)
    assert torch.allclose(c.mT @ found, v, atol=1e-9)


def test_redundant_constraints_change_nothing_and_units_do_not_matter():
    matrix, b = torch.eye(5, dtype=torch.float64) + 0.3, normal(5)
    c, v = normal(5, 2, rng_seed=1), normal(2, rng_seed=2)
    factor = torch.linalg.cholesky(matrix)
    once = _linalg.minimise_quadratic(factor, b, c, v)
    doubled = _linalg.minimise_quadratic(
        factor, b, torch.cat([c, 1e6 * c, 0.0 * c[:, :1]], -1), torch.cat([v, 1e6 * v, 0.0 * v[:1]])
    )
    assert torch.allclose(once, doubled, rtol=1e-9)


def test_contradicting_constraints_are_refused():
    c = torch.ones(5, 2, dtype=torch.float64)
    with pytest.raises(NumericalError, match="exactness constraints"):
        _linalg.minimise_quadratic(torch.eye(5, dtype=torch.float64), normal(5), c, torch.tensor([1.0, 2.0]).double())


@some
@given(covariances(6), rng_seeds, st.floats(0.1, 10.0))
def test_minimum_on_the_simplex_is_the_best_of_all_supports(matrix, rng_seed, total):
    b = normal(6, rng_seed=rng_seed)
    start = torch.full((6,), total / 6, dtype=torch.float64)
    found = _linalg.minimise_on_simplex(matrix, b, start).numpy()
    assert np.allclose(found, oracles.simplex_weights(matrix.numpy(), b.numpy(), total), rtol=1e-6, atol=1e-9)


@few
@given(covariances(7), rng_seeds, st.integers(0, 6))
def test_minimum_on_the_simplex_does_not_depend_on_the_start(matrix, rng_seed, corner):
    b = normal(7, rng_seed=rng_seed)
    vertex = torch.zeros(7, dtype=torch.float64)
    vertex[corner] = 1.0
    found = [_linalg.minimise_on_simplex(matrix, b, start) for start in (vertex, torch.full_like(vertex, 1 / 7))]
    assert torch.allclose(*found, rtol=1e-7, atol=1e-10)


def test_queries_on_the_simplex_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    factors = torch.as_tensor(rng.normal(size=(5, 8, 8)))
    grams, b = factors @ factors.mT + 0.1 * torch.eye(8), torch.as_tensor(rng.normal(size=(5, 8)))
    start = torch.full((5, 8), 0.125, dtype=torch.float64)
    together = _linalg.minimise_on_simplex(grams, b, start)
    for i in range(5):
        assert torch.allclose(together[i], _linalg.minimise_on_simplex(grams[i], b[i], start[i]), atol=1e-12)


@few
@given(st.integers(1, 9), st.integers(1, 300))
def test_blocks_cover_every_column_once(rows, columns):
    seen = [i for block in _linalg.blocks(rows, columns) for i in range(columns)[block]]
    assert seen == list(range(columns))


def test_many_rows_still_come_in_blocks_of_several_columns():
    """A block per column would loop over the atoms of a thousand queries one by one, a block of all fill memory."""
    widths = {rows: next(_linalg.blocks(rows, 10_000)).stop for rows in (1, 256, 4_096, 32_000, 10**7)}
    assert widths == {1: 10_000, 256: 128, 4_096: 32, 32_000: 8, 10**7: 1}


@pytest.mark.parametrize("recording", [False, True])
def test_sum_in_blocks_is_the_sum(monkeypatch, recording):
    x, w = normal(3, 50), normal(50, rng_seed=1).requires_grad_(recording)

    def term(block):
        return (x[:, block] @ w[block], x[:, block].square() @ w[block].square())

    whole = _linalg.blocked_sum(term, 3, 50, recording=recording)
    monkeypatch.setattr(_linalg, "BLOCK_ENTRIES", 21)
    monkeypatch.setattr(_linalg, "RECORDED_ENTRIES", 21)
    pieces = _linalg.blocked_sum(term, 3, 50, recording=recording)
    for a, b in zip(whole, pieces, strict=True):
        assert torch.allclose(a, b, rtol=1e-12)
    if recording:
        slopes = [torch.autograd.grad(sum(p.sum() for p in parts), w)[0] for parts in (whole, pieces)]
        assert torch.allclose(*slopes, rtol=1e-12)


def test_cholesky_reports_jitter_condition_and_query():
    gram = torch.stack([torch.eye(3), torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])]).double()
    with pytest.raises(NumericalError, match=r"query 1 .*jitter 1e-10, condition number") as caught:
        _linalg.jittered_cholesky(gram, 1e-10)
    assert "larger `jitter`" in str(caught.value)


def test_cholesky_of_a_gram_that_is_not_finite_says_so():
    with pytest.raises(NumericalError, match="not finite"):
        _linalg.jittered_cholesky(torch.full((2, 2), torch.nan), 1e-10)


def test_jitter_is_relative_to_the_mean_diagonal():
    gram = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert torch.allclose(_linalg.ridged(gram, 0.5), torch.diag(torch.tensor([2.0, 4.0], dtype=torch.float64)))


@few
@given(covariances(3), rng_seeds)
def test_normal_pulls_are_precision_times_gap_and_log_density(cov, rng_seed):
    x, mean = normal(4, 3, rng_seed=rng_seed), normal(3, rng_seed=rng_seed + 1)
    pulls, log_density = _linalg.normal_pulls(x, mean, torch.linalg.cholesky(cov))
    assert torch.allclose(pulls, torch.linalg.solve(cov, (x - mean).mT).mT, rtol=1e-8, atol=1e-10)
    expected = [oracles.normal_log_density(p, mean.numpy(), cov.numpy()) for p in x.numpy()]
    assert np.allclose(log_density.numpy(), expected, rtol=1e-11)


@few
@given(covariances(4))
def test_symmetric_root_squares_to_the_matrix(matrix):
    root, inverse = _linalg.symmetric_root(matrix, 1e-12)
    assert torch.allclose(root @ root, matrix, rtol=1e-10, atol=1e-12)
    assert torch.allclose(root @ inverse, torch.eye(4, dtype=torch.float64), atol=1e-10)
    assert torch.allclose(root, root.mT, atol=1e-13)


def test_symmetric_root_of_zero_is_the_identity():
    root, inverse = _linalg.symmetric_root(torch.zeros(3, 3), 1e-10)
    assert torch.equal(root, torch.eye(3))
    assert torch.equal(inverse, torch.eye(3))


def test_pairwise_distances_are_twice_differentiable():
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(_linalg.pairwise_squared_distances, (x,))
    coinciding = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    _linalg.pairwise_squared_distances(coinciding).exp().sum().backward()
    assert torch.equal(coinciding.grad, torch.zeros_like(coinciding))
