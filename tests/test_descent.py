import numpy as np
import oracles
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amsip import Gaussian, Octaves, Polynomial, Samples, SquaredExponential, mmd2, optimal_weights
from amsip.discrepancy import loss
from amsip.maps import levenberg
from amsip.maps.descent import Descent, DescentStep, descent_direction
from amsip.maps.levenberg import NormalEquations, read


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


def score(nodes: torch.Tensor, embedding) -> torch.Tensor:
    """The discrepancy without its constant, as the guard measures it."""
    weights = optimal_weights(nodes, embedding).to(torch.float64)
    exact = nodes.to(torch.float64)
    return loss(embedding.kernel.gram(exact), embedding.mean(exact), weights)


def pool(d: int = 3, n: int = 211, rng_seed: int = 5) -> Samples:
    return Samples(points(n, d, rng_seed=rng_seed))


@st.composite
def hard_references(draw):
    """Sharp, duplicated, collinear or wildly scaled atoms; seeds that repeat them."""
    rng = np.random.default_rng(draw(strategies.rng_seeds))
    n, d, m = draw(st.integers(1, 19)), draw(st.integers(1, 5)), draw(st.integers(1, 7))
    atoms = rng.normal(size=(n, d))
    kind = draw(st.sampled_from(["plain", "duplicates", "collinear", "sharp"]))
    if kind == "duplicates":
        atoms = atoms[rng.integers(0, max(1, n // 3), size=n)]
    if kind == "collinear":
        atoms = rng.normal(size=(n, 1)) * rng.normal(size=(1, d))
    weights = np.exp(rng.normal(size=n) * (5.0 if kind == "sharp" else 0.5))
    scale = 10.0 ** draw(st.integers(-6, 6))
    seeds = atoms[rng.integers(0, n, size=m)] + draw(st.sampled_from([0.0, 1e-9, 0.3])) * rng.normal(size=(m, d))
    bandwidth = scale * draw(st.floats(0.05, 5.0))
    return scale * torch.as_tensor(atoms), torch.as_tensor(weights), scale * torch.as_tensor(seeds), bandwidth


@settings(max_examples=30, deadline=None)
@given(hard_references(), st.sampled_from([torch.float64, torch.float32]), st.booleans())
def test_never_ends_above_its_start(case, dtype, newton):
    atoms, weights, seeds, bandwidth = case
    embedding = Samples(atoms.to(dtype), weights.to(dtype)).embed(SquaredExponential(bandwidth))
    seeds = seeds.to(dtype)
    nodes = Descent(steps=5, newton=newton)(seeds, embedding)
    assert nodes.dtype == dtype
    assert nodes.shape == seeds.shape
    assert torch.isfinite(nodes).all()
    assert score(nodes, embedding) <= score(seeds, embedding)


def test_every_step_of_every_query_is_downhill():
    trace: list[DescentStep] = []
    reference = pool(2)
    Descent(steps=15, callback=trace.append)(points(7, 5, 2), reference.embed(SquaredExponential(0.4)))
    losses = torch.stack([step.loss for step in trace])
    assert (losses[1:] <= losses[:-1]).all()
    taken = torch.stack([step.accepted for step in trace[1:]])
    assert ((losses[1:] < losses[:-1]) == taken).all()
    assert trace[0].step == 0
    assert trace[-1].ess.shape == trace[-1].gram_rank.shape == (7,)


def test_a_query_that_finds_nothing_keeps_its_own_nodes():
    embedding = Samples(torch.zeros(1, 2, dtype=torch.float64)).embed(SquaredExponential(1.0))
    nodes = torch.zeros(1, 2, dtype=torch.float64)
    assert torch.equal(Descent()(nodes, embedding), nodes)


@pytest.mark.parametrize("newton", [False, True])
def test_model_is_the_derivative_of_the_discrepancy(newton):
    """Newton's matrix is half the Hessian of J, differentiated numerically; Kaufman's shares its gradient."""
    embedding = pool(2).embed(Octaves(0.5, 2) + 0.5 * Polynomial(2, 2.0))
    nodes = points(4, 2, rng_seed=7)
    model = NormalEquations.at(read(nodes, embedding), embedding)

    def half(flat: np.ndarray) -> float:
        return 0.5 * score(torch.as_tensor(flat).reshape(4, 2), embedding).item()

    slope = oracles.gradient(half, nodes.numpy().ravel(), step=1e-3)
    np.testing.assert_allclose(-model.gradient.numpy().ravel(), slope, rtol=1e-6, atol=1e-9)
    if newton:
        rows = []
        for i in range(8):
            e = 1e-5 * np.eye(8)[i]
            slopes = [
                NormalEquations.at(read(nodes + s * torch.as_tensor(e).reshape(4, 2), embedding), embedding).gradient
                for s in (1.0, -1.0)
            ]
            rows.append(-(slopes[0] - slopes[1]).numpy().ravel() / 2e-5)
        np.testing.assert_allclose(model._matrix(True).numpy(), np.array(rows), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("newton", [False, True])
def test_products_are_those_of_the_dense_matrix(newton):
    embedding = pool(3).embed(Octaves(0.7, 3) + Polynomial(2, 3.0))
    nodes, v = points(2, 5, 3, rng_seed=2), points(2, 5, 3, rng_seed=3)
    model = NormalEquations.at(read(nodes, embedding), embedding)
    dense = (model._matrix(newton) @ v.flatten(-2)[..., None])[..., 0].unflatten(-1, (5, 3))
    torch.testing.assert_close(model._product(v, newton), dense, rtol=1e-8, atol=1e-10)


def test_conjugate_gradients_reach_the_dense_step(monkeypatch):
    embedding = pool(3).embed(SquaredExponential(1.5))
    model = NormalEquations.at(read(points(2, 5, 3, rng_seed=2), embedding), embedding)
    damping = torch.full((2,), 0.3, dtype=torch.float64)
    step, promised, _ = model.direction(damping)
    monkeypatch.setattr(levenberg, "DENSE_UNKNOWNS", 0)
    monkeypatch.setattr(levenberg, "CONJUGATE_TOLERANCE", 1e-20)
    again, promised_again, _ = model.direction(damping)
    torch.testing.assert_close(again, step, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(promised_again, promised, rtol=1e-6, atol=1e-10)


def test_large_problems_descend_by_conjugate_gradients(monkeypatch):
    monkeypatch.setattr(levenberg, "DENSE_UNKNOWNS", 10)
    embedding, seeds = pool(3).embed(SquaredExponential(1.0)), points(2, 7, 3)
    moved = Descent(steps=5)(seeds, embedding)
    before = mmd2(seeds, optimal_weights(seeds, embedding), embedding)
    assert (mmd2(moved, optimal_weights(moved, embedding), embedding) < 0.5 * before).all()


def test_reaches_a_stationary_point():
    embedding = Gaussian(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)).embed(
        SquaredExponential(1.0)
    )
    nodes = Descent(steps=60, tolerance=0.0)(points(5, 2), embedding)
    assert NormalEquations.at(read(nodes, embedding), embedding).gradient.abs().max() < 1e-7


def test_queries_do_not_see_each_other():
    embedding, seeds = pool(2).embed(SquaredExponential(0.7)), points(3, 5, 2)
    together = Descent(steps=4, tolerance=0.0)(seeds, embedding)
    for i in range(3):
        torch.testing.assert_close(
            Descent(steps=4, tolerance=0.0)(seeds[i], embedding), together[i], rtol=1e-6, atol=1e-7
        )


def test_permuted_nodes_come_back_permuted():
    embedding, seeds = pool(2).embed(SquaredExponential(0.7)), points(5, 2)
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = Descent(steps=4)(seeds, embedding)
    torch.testing.assert_close(Descent(steps=4)(seeds[order], embedding), moved[order], rtol=1e-6, atol=1e-7)


def test_coinciding_nodes_part():
    embedding = pool(2).embed(SquaredExponential(0.7))
    nodes = Descent(steps=10)(torch.zeros(5, 2, dtype=torch.float64), embedding)
    assert torch.pdist(nodes).min() > 1e-3


def test_no_node_outruns_the_largest_move():
    embedding, seeds = pool(2).embed(SquaredExponential(0.7)), points(5, 2)
    moved = Descent(steps=1, largest_move=0.01)(seeds, embedding)
    assert 0 < (moved - seeds).norm(dim=-1).max() <= 0.01 + 1e-12


@pytest.mark.parametrize("damping", [1e-3, 1.0])
def test_the_direction_is_differentiable(damping):
    embedding, nodes = pool(2, 17).embed(SquaredExponential(0.9)), points(4, 2, rng_seed=9).requires_grad_()
    raw = torch.tensor(damping, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z, t: descent_direction(z, embedding, t), (nodes, raw), atol=1e-4)


def test_the_direction_points_downhill():
    embedding, nodes = pool(3).embed(Octaves(0.5, 3)), points(2, 5, 3)
    step = 1e-3 * descent_direction(nodes, embedding, torch.tensor([0.1, 10.0]))
    assert (score(nodes + step, embedding) < score(nodes, embedding)).all()


@pytest.mark.parametrize("arguments", [{"steps": -1}, {"damping": 0.0}, {"largest_move": -1.0}, {"tolerance": -1e-3}])
def test_refuses_meaningless_options(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        Descent(**arguments)
