import json

import numpy as np
import oracles
import pytest
import torch

from amsip.bench.rivals import RIVALS, flow, foreign, greedy, particles, support, worker
from amsip.bench.rivals.base import Rival, Rules
from amsip.bench.rivals.foreign import describe, installed_versions
from amsip.bench.rivals.greedy import greedy_quadrature
from amsip.bench.rivals.particles import interacting_particles
from amsip.bench.rivals.regression import control_variates, determined, monomials
from amsip.bench.rivals.support import support_points
from amsip.defaults import whitened_kernel
from amsip.kernels import Matern, Octaves, Polynomial, SquaredExponential

NATIVE = [
    rival for rival in RIVALS if getattr(rival.make, "__module__", "").startswith("amsip") and "flow" not in rival.name
]


def pool(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(n + d), dtype=torch.float64)


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    """Enough for one particle to rest; the measurement takes many more."""
    monkeypatch.setattr(particles, "ITERATIONS", 30)
    monkeypatch.setattr(support, "ITERATIONS", 30)
    monkeypatch.setattr(greedy, "CANDIDATES", 150)


def test_there_are_native_rivals_to_test():
    assert len(NATIVE) >= 5


@pytest.mark.parametrize("rival", NATIVE, ids=lambda r: r.name)
def test_rules_have_their_shapes_and_repeat_with_the_generator(rival):
    draws, kernel = pool(211, 2), whitened_kernel(2)
    one, two = (rival.make(draws, kernel, 11, 3, seeded()) for _ in range(2))
    assert one.nodes.shape == (3, 11, 2)
    assert torch.equal(one.nodes, two.nodes)
    assert not torch.equal(one.nodes[0], one.nodes[1])
    if one.weights is not None:
        assert torch.allclose(one.weights.sum(-1), torch.ones(3, dtype=torch.float64), atol=1e-8)


@pytest.mark.parametrize("rival", NATIVE, ids=lambda r: r.name)
def test_calling_a_rival_gives_one_rule(rival):
    draws = pool(101, 2)
    nodes, weights = rival(draws, whitened_kernel(2), 11, seeded())
    assert nodes.shape == (11, 2)
    assert weights is None or weights.shape == (11,)


def test_greedy_tries_every_candidate():
    draws, kernel = pool(23, 2), 0.7 * SquaredExponential(0.9) + 2.0 * Polynomial(degree=2, scale=2.0)

    def point_kernel(x, z):
        return 0.7 * oracles.squared_exponential(x, z, 0.9) + 2.0 * oracles.polynomial(x, z, 2, 2.0)

    points = draws.numpy()
    mean = np.array([np.mean([point_kernel(x, z) for x in points]) for z in points])
    expected = points[oracles.greedy_indices(points, point_kernel, mean, 5)]
    for nodes in greedy_quadrature(draws, kernel, 5, 2, seeded()).nodes:
        assert np.allclose(nodes.numpy(), expected)


def test_greedy_repetitions_differ_through_their_candidates(monkeypatch):
    monkeypatch.setattr(greedy, "CANDIDATES", 60)
    rules = greedy_quadrature(pool(199, 2), whitened_kernel(2), 5, 2, seeded())
    assert not torch.equal(rules.nodes[0], rules.nodes[1])


@pytest.mark.parametrize("degree", [1, 2])
def test_control_variates_are_the_regression_read_at_the_known_means(degree):
    draws = pool(307, 3)
    rules = control_variates(draws, SquaredExponential(1.0), 29, 2, seeded(), degree=degree)
    f = torch.sin(rules.nodes.sum(-1))
    for nodes, weights, values in zip(rules.nodes, rules.weights, f, strict=True):
        coefficients = np.linalg.lstsq(monomials(nodes, degree).numpy(), values.numpy(), rcond=None)[0]
        assert np.isclose((weights * values).sum().item(), monomials(draws, degree).numpy().mean(0) @ coefficients)


def test_control_variates_are_exact_on_their_polynomials():
    draws = pool(307, 3)
    rules = control_variates(draws, SquaredExponential(1.0), 29, 2, seeded(), degree=2)
    assert torch.allclose((rules.weights[..., None] * rules.nodes**2).sum(-2), (draws**2).mean(0).expand(2, 3))


def test_control_variates_need_more_draws_than_columns():
    assert determined(32, 5, 2)
    assert not determined(32, 10, 2)


def test_one_support_point_on_the_line_is_the_median():
    draws = pool(501, 1).exp()
    nodes = support_points(draws, SquaredExponential(1.0), 1, 2, seeded()).nodes
    # the procedure contracts slowly near the median of a dense sample
    assert (nodes[:, 0, 0] - draws.median()).abs().max() < 0.05
    assert (nodes[:, 0, 0] - draws.mean()).abs().min() > 0.2


def test_support_points_lower_the_energy_distance():
    draws = pool(401, 2)
    nodes = support_points(draws, SquaredExponential(1.0), 13, 3, seeded()).nodes

    def energy(z):
        return 2 * torch.cdist(z, draws.expand(3, -1, -1)).mean((-2, -1)) - torch.cdist(z, z).mean((-2, -1))

    assert (energy(nodes) < 0.999 * energy(draws[: 3 * 13].reshape(3, 13, 2))).all()


def test_one_particle_rests_where_the_classical_mean_shift_does(monkeypatch):
    # wide enough for one mode, so that half steps contract quickly
    monkeypatch.setattr(particles, "ITERATIONS", 90)
    draws, h = pool(37, 2), 1.6
    node = interacting_particles(draws, SquaredExponential(h), 1, 1, seeded()).nodes[0, 0].numpy()
    mass = np.array([oracles.squared_exponential(x, node, h) for x in draws.numpy()])
    assert np.allclose(mass @ draws.numpy() / mass.sum(), node, atol=1e-6)


def test_particles_never_end_above_their_start():
    draws, kernel = pool(211, 2), SquaredExponential(0.8)
    rules = interacting_particles(draws, kernel, 7, 3, seeded())
    gram = kernel.gram(rules.nodes)
    mean = kernel(rules.nodes, draws).mean(-1)
    reached = (rules.weights * ((gram @ rules.weights[..., None])[..., 0] - 2 * mean)).sum(-1)
    start = draws[torch.rand(3, 211, generator=seeded()).topk(7, dim=-1).indices]
    equal = kernel.gram(start).mean((-2, -1)) - 2 * kernel(start, draws).mean((-2, -1))
    assert (reached < equal).all()


@pytest.mark.slow
def test_flow_carries_sobol_points_to_the_draws(monkeypatch):
    pytest.importorskip("zuko")
    monkeypatch.setattr(flow, "STEPS", 100)
    draws = torch.tensor([3.0, -1.0], dtype=torch.float64) + 0.5 * pool(600, 2)
    rules = flow.sobol_through_flow(draws, SquaredExponential(1.0), 64, 2, seeded())
    assert rules.nodes.shape == (2, 64, 2)
    assert (rules.nodes.mean(-2) - draws.mean(0)).abs().max() < 0.3
    assert rules.ms > 0


def test_worker_kernel_is_ours():
    kernel = whitened_kernel(3)
    x, y = pool(17, 3), pool(13, 3)
    assert np.allclose(worker.gram(describe(kernel), x.numpy(), y.numpy()), kernel(x, y).numpy(), atol=1e-12)


def test_worker_kernel_crosses_its_blocks(monkeypatch):
    x, terms = pool(17, 3).numpy(), describe(Octaves(0.5, 3, (1.0, 2.0, 3.0)))
    whole = worker.gram(terms, x, x)
    monkeypatch.setattr(worker, "BLOCK", 5)
    assert np.allclose(worker.gram(terms, x, x), whole)


def test_other_kernels_cannot_be_described():
    with pytest.raises(TypeError, match="Matern"):
        describe(Matern(1.0))


def test_rows_for_halving_hold_every_draw():
    rows = worker.power_of_two_rows(4000, np.random.default_rng(0))
    assert len(rows) == 4096
    assert set(rows) == set(range(4000))


def test_pivoted_cholesky_of_full_rank_is_the_matrix():
    x = pool(11, 2).numpy()
    K = worker.gram([["gaussian", 1.0, 0.7, 0]], x, x)
    features = worker.pivoted_cholesky(lambda i: K[:, i], np.diag(K) / 11, 11, np.random.default_rng(0))
    assert np.allclose(features @ features.T, K / 11, atol=1e-10)


def test_a_rival_that_is_not_there_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(foreign, "installed_versions", lambda: {})
    reasons = [rival.missing() for rival in RIVALS if rival.name == "kernel thinning"]
    assert reasons == ["goodpoints is not installed: `amsip bench posteriors --install-rivals`"]


def test_a_rival_that_dies_is_named(monkeypatch, tmp_path):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit('no such thing')\n")
    monkeypatch.setattr(foreign, "WORKER", broken)
    monkeypatch.setattr(foreign, "_python", lambda: __import__("sys").executable)
    with pytest.raises(RuntimeError, match=r"K-means failed .*no such thing"):
        foreign.foreign("k-means", pool(19, 2), SquaredExponential(1.0), 3, 1, seeded())


def test_each_rule_is_charged_the_kernel_values_it_reads_though_they_are_made_once():
    draws = pool(23, 2).numpy()
    shared = worker.Pool(draws, [["gaussian", 1.0, 0.7, 0]])
    K = worker.gram(shared.terms, draws, draws)
    rows = np.array([3, 1, 7])
    assert np.array_equal(shared.block(rows), K[np.ix_(rows, rows)])
    assert np.allclose(shared.means(rows), K[rows].mean(1))
    assert np.array_equal(shared.column(5), K[:, 5])
    assert shared.entries == 9 + 3 * 23 + 23


def test_what_one_rival_fails_with_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setitem(worker.MAKERS, "first", lambda given, m: lambda rng: (given.draws[:m], None))
    asked = {"rivals": ["none", "first"], "kernel": [], "m": 3, "sets": 2, "rng_seed": 0}
    np.savez(tmp_path / "in.npz", pool=pool(7, 2).numpy(), settings=json.dumps(asked))
    worker.main(str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz") as answer:
        assert isinstance(foreign._rules(answer, "none"), str)
        assert torch.equal(foreign._rules(answer, "first").nodes, pool(7, 2)[:3].expand(2, 3, 2))


@pytest.mark.slow
@pytest.mark.parametrize("rival", [r for r in RIVALS if not str(getattr(r.make, "__module__", "")).startswith("amsip")])
def test_rivals_of_other_libraries_pick_or_make_nodes(rival):
    if rival.missing():
        pytest.skip(rival.missing())
    draws = pool(512, 2)
    rules = rival.make(draws, whitened_kernel(2), 8, 2, seeded())
    assert rules.nodes.shape == (2, 8, 2)
    assert torch.isfinite(rules.nodes).all()
    assert rules.ms > 0
    if rules.weights is not None:
        assert torch.allclose(rules.weights.sum(-1), torch.ones(2, dtype=torch.float64), atol=1e-6)
        assert (rules.weights >= 0).all()
    assert installed_versions()


def test_the_time_of_one_rule_is_measured_when_the_rival_does_not_know_it():
    rival = Rival("first", lambda draws, kernel, m, sets, _: Rules(draws[:m].expand(sets, m, -1)))
    assert rival.repeat(pool(19, 2), SquaredExponential(1.0), 3, 2, seeded()).ms >= 0
