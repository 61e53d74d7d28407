"""What a user can get wrong: each is an error that says what to do, or a documented answer; never a silent NaN."""

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import few, rng_seeds

from amsip import (
    Conditional,
    Descent,
    Gaussian,
    Mixture,
    NumericalError,
    Octaves,
    Polynomial,
    Rule,
    Samples,
    SquaredExponential,
    Whitened,
    Whitening,
    draw_seeds,
    mmd2,
    optimal_weights,
    quadrature,
    resolution_dial,
)
from amsip.rules import pool


@pytest.fixture(autouse=True)
def _as_users_run_it():
    """Without the shape checker, which would speak before the package does."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def reweighted(draws, m=4, **settings):
    return quadrature(draws, m, node_map=None, generator=torch.Generator().manual_seed(0), **settings)


def spoiled(row, value, shape=(20, 3)):
    draws = normal(*shape)
    draws[row] = value
    return draws


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("enter", [Samples, reweighted, lambda x: draw_seeds(Samples(x), 3)])
def test_draws_that_are_not_finite_are_named_by_their_first_row(enter, value):
    with pytest.raises(ValueError, match=r"row 7 is not \(1 of 20 rows\)\. Drop them first"):
        enter(spoiled(7, value))


def test_draws_that_are_not_finite_are_named_by_query_and_row():
    with pytest.raises(ValueError, match=r"row \(1, 4\) is not"):
        Samples(spoiled((1, 4), float("nan"), (2, 9, 3)))


@pytest.mark.parametrize("m", [0, -3])
def test_at_least_one_node(m):
    with pytest.raises(ValueError, match=f"must be between 1 and 4096: got {m}"):
        reweighted(normal(20, 2), m)


def test_not_more_nodes_than_the_stated_limit():
    with pytest.raises(ValueError, match="must be between 1 and 4096: got 4097"):
        reweighted(normal(20, 2), 4097)


@pytest.mark.parametrize("m", [2.0, "8", None, True])
def test_the_number_of_nodes_is_an_integer(m):
    with pytest.raises(TypeError, match="must be an int"):
        reweighted(normal(20, 2), m)


@pytest.mark.parametrize("m", [1, 3])
def test_one_sample_is_integrated_exactly(m):
    rule = reweighted(torch.tensor([[2.0, -1.0]]).double(), m)
    assert torch.allclose(rule.nodes, torch.tensor([[2.0, -1.0]]).double().expand(m, 2))
    assert rule.total.item() == pytest.approx(1.0)
    assert torch.allclose(rule.mean(), torch.tensor([2.0, -1.0]).double())
    assert torch.allclose(rule.cov(), torch.zeros(2, 2).double())


@pytest.mark.parametrize("m", [1, 4, 9])
def test_one_point_many_times_is_integrated_exactly(m):
    rule = reweighted(torch.full((50, 3), 0.1).double(), m)
    assert torch.allclose(rule.mean(), torch.full((3,), 0.1).double())
    assert abs(rule.mmd2.item()) < 1e-9


def test_duplicated_draws_share_the_weight():
    draws = normal(10, 2).repeat(6, 1)
    rule = reweighted(draws, 30)
    assert bool(torch.isfinite(rule.weights).all())
    assert rule.total.item() == pytest.approx(1.0, abs=1e-8)
    assert rule.weights.abs().max() < 1.0


def test_more_nodes_than_draws_repeat_draws():
    rule = reweighted(normal(5, 2), 11)
    assert rule.nodes.shape == (11, 2)
    assert abs(rule.mmd2.item()) < 1e-6


def test_constant_coordinates_stay_constant():
    draws = torch.cat([normal(200, 2), torch.full((200, 1), 7.5).double()], -1)
    rule = reweighted(draws, 16)
    assert torch.allclose(rule.nodes[:, 2], torch.full((16,), 7.5).double(), atol=1e-9)
    assert bool(torch.isfinite(rule.cov()).all())
    assert rule.mean()[2].item() == pytest.approx(7.5)


def test_a_coordinate_that_copies_another_is_no_obstacle():
    line = normal(200, 1)
    rule = reweighted(torch.cat([line, 2.0 * line, normal(200, 1, rng_seed=1)], -1), 16)
    assert torch.allclose(rule.mean()[1], 2.0 * rule.mean()[0], atol=1e-8)


@few
@given(st.floats(-6.0, 6.0), st.floats(-6.0, 6.0), rng_seeds)
def test_units_of_any_size_give_the_same_weights(low, high, rng_seed):
    draws = normal(60, 2, rng_seed=rng_seed)
    units = torch.tensor([10.0**low, 10.0**high]).double()
    plain, scaled = reweighted(draws, 6), reweighted(draws * units, 6)
    assert torch.allclose(plain.nodes * units, scaled.nodes, rtol=1e-7, atol=1e-9 * units.max())
    assert torch.allclose(plain.weights, scaled.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_bandwidths_must_be_positive(bad):
    with pytest.raises(ValueError, match="`bandwidth` must be finite and positive"):
        SquaredExponential(bad)


@pytest.mark.parametrize(
    "draws",
    [np.arange(24).reshape(12, 2), torch.arange(24).reshape(12, 2), [[i, i * i] for i in range(12)]],
    ids=["numpy", "torch", "list"],
)
def test_integers_are_taken_as_doubles(draws):
    rule = reweighted(draws)
    assert rule.nodes.dtype == torch.float64
    assert bool(torch.isfinite(rule.weights).all())


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (2, 0, 3)])
def test_empty_arrays_are_refused(shape):
    with pytest.raises(ValueError, match="at least one point and one coordinate"):
        reweighted(torch.zeros(shape))


@pytest.mark.parametrize("draws", [torch.zeros(7), torch.tensor(1.0)])
def test_a_row_of_numbers_is_ambiguous(draws):
    with pytest.raises(ValueError, match=r"pass `values\[:, None\]`"):
        reweighted(draws)


@pytest.mark.parametrize("draws", ["draws.npz", None, [[1.0], [2.0, 3.0]], np.array([["a", "b"]])])
def test_what_is_not_an_array_of_numbers_is_refused(draws):
    with pytest.raises((TypeError, ValueError), match="`samples` must be"):
        reweighted(draws)


@pytest.mark.parametrize(
    "as_given",
    [
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.longdouble),
        lambda x: x[::-1][::-1],
        lambda x: np.asfortranarray(x),
        lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
        lambda x: x[::-1].copy()[::-1],
    ],
    ids=["foreign order", "long double", "view", "columns first", "read only", "backwards"],
)
def test_arrays_in_any_layout_are_the_same_draws(as_given):
    x = np.random.default_rng(0).normal(size=(20, 2))
    assert torch.equal(Samples(as_given(x)).atoms, torch.as_tensor(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_worked_out_in_single(dtype):
    draws = normal(60, 2).to(dtype)
    rule = quadrature(draws, 4, generator=torch.Generator().manual_seed(0))
    assert rule.nodes.dtype == torch.float32
    assert torch.allclose(rule.mean(), draws.float().mean(0), atol=1e-5)


@pytest.mark.parametrize("m", [np.int64(4), np.int32(4), np.uint8(4)])
def test_numpy_counts_are_counts(m):
    assert len(reweighted(normal(20, 2), m)) == 4


@pytest.mark.parametrize("generator", [0, np.random.default_rng(0)])
def test_a_seed_is_not_a_generator(generator):
    with pytest.raises(TypeError, match=r"`generator` must be a torch\.Generator: got .*manual_seed"):
        quadrature(normal(20, 2), 4, generator=generator)


def test_budgets_may_be_any_numbers_of_nodes_but_some():
    state = torch.Generator().manual_seed(0)
    assert list(resolution_dial(normal(20, 2), iter([2, 4]), node_map=None, generator=state)) == [2, 4]
    assert list(resolution_dial(normal(20, 2), np.array([2, 4]), node_map=None, generator=state)) == [2, 4]
    with pytest.raises(ValueError, match="`budgets` must hold at least one"):
        resolution_dial(normal(20, 2), [])
    with pytest.raises(TypeError, match="`budgets` must be a sequence"):
        resolution_dial(normal(20, 2), 4)


@pytest.mark.parametrize("draws", [normal(1, 3), torch.cat([normal(40, 2), normal(40, 2) * 1e-200], -1)])
def test_the_default_map_takes_a_single_point_and_vanishing_spread(draws):
    rule = quadrature(draws, 4, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(rule.mean(), draws.mean(0))


@pytest.mark.parametrize("unit", [1e-24, 1e20])
def test_a_spread_whose_square_leaves_single_precision_is_refused(unit):
    draws = (normal(20, 2) * torch.tensor([1.0, unit])).float()
    with pytest.raises(ValueError, match="square float32 can hold: the standard deviation of coordinate 1"):
        reweighted(draws)
    assert bool(torch.isfinite(reweighted(draws.double()).nodes).all())


def test_rounding_beside_a_large_coordinate_is_no_spread_to_hold():
    # in the chart its square leaves single precision, which is nobody's fault
    draws = (normal(50, 2) * torch.tensor([1e16, 6e-8]) + torch.tensor([0.0, 1.0])).float()
    assert reweighted(draws).nodes.dtype == torch.float32


def test_constant_coordinates_of_any_size_have_no_spread_to_hold():
    assert reweighted(torch.cat([normal(20, 1), torch.full((20, 1), 1e-24).double()], -1).float()).nodes.shape == (4, 2)


def test_a_conditional_needs_its_observation_before_it_is_integrated():
    conditional = Conditional(normal(20, 2), normal(20, 1), 0.5)
    with pytest.raises(TypeError, match=r"pass `conditional\.given\(observation\)`"):
        quadrature(conditional, 3)
    with pytest.raises(ValueError, match=r"`queries` must have shape \(\.\.\., d\)"):
        conditional.given(0.5)


@pytest.mark.parametrize("node_map", [lambda z, e: z[:2], lambda z, e: z[:, :1], lambda z, e: z.numpy()])
def test_a_map_that_returns_something_else_is_refused(node_map):
    with pytest.raises(ValueError, match=r"`node_map` must return nodes of the shape of its seeds, \(4, 2\): got"):
        quadrature(normal(20, 2), 4, node_map=node_map)


def test_a_rule_is_made_of_arrays_and_lists_as_well():
    for rule in (Rule([[0.0], [2.0]], [0.5, 0.5]), Rule(np.array([[0], [2]]), np.array([0.5, 0.5]))):
        assert rule.mean().item() == 1.0
        assert rule.nodes.dtype == torch.float64


def test_complex_and_boolean_arrays_are_refused():
    for draws in (torch.zeros(3, 2, dtype=torch.complex64), torch.zeros(3, 2, dtype=torch.bool)):
        with pytest.raises(TypeError, match="must be real numbers"):
            Samples(draws)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1.0], "one entry per sample"),
        ([-1.0, 1.0, 1.0], "non-negative"),
        ([0.0, 0.0, 0.0], "positive sum"),
        ([float("nan"), 1.0, 1.0], "finite"),
        ([[1.0, 1.0, 1.0]], "one entry per sample"),
    ],
)
def test_sample_weights_must_be_weights(weights, message):
    with pytest.raises(ValueError, match=f"`sample_weights` must.*{message}"):
        reweighted(normal(3, 2), sample_weights=torch.tensor(weights))


def test_sample_weights_beside_a_reference_are_refused():
    with pytest.raises(ValueError, match="a Reference carries its own"):
        reweighted(Samples(normal(3, 2)), sample_weights=torch.ones(3))


def test_all_the_weight_on_one_draw_is_that_draw():
    weights = torch.zeros(20)
    weights[3] = 2.0
    draws = normal(20, 2)
    rule = reweighted(draws, 5, sample_weights=weights)
    assert torch.allclose(rule.mean(), draws[3])


def test_nodes_and_weights_must_fit():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    with pytest.raises(ValueError, match=r"got \(3,\) for nodes \(4, 2\)"):
        mmd2(normal(4, 2), normal(3), embedding)
    with pytest.raises(ValueError, match="`nodes` must have 2 coordinates"):
        mmd2(normal(4, 3), normal(4), embedding)
    with pytest.raises(ValueError, match="`nodes` must have 2 coordinates"):
        optimal_weights(normal(4, 3), embedding)
    with pytest.raises(ValueError, match="one entry per node"):
        Rule(torch.zeros(2, 2, 1), torch.ones(1, 2))


def test_nodes_that_are_not_finite_have_no_weights():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    with pytest.raises(NumericalError, match="must be finite at the nodes: query 1"):
        optimal_weights(torch.stack([normal(4, 2), spoiled(2, float("nan"), (4, 2))]), embedding)


def test_coinciding_nodes_without_jitter_say_how_close_they_are():
    embedding = Samples(normal(9, 2)).embed(SquaredExponential(1.0))
    with pytest.raises(NumericalError, match=r"jitter 0, condition number .* larger `jitter`"):
        optimal_weights(torch.zeros(4, 2).double(), embedding, jitter=0.0)
    assert optimal_weights(torch.zeros(4, 2).double(), embedding).sum().item() == pytest.approx(1.0)


def test_a_negative_jitter_is_refused():
    with pytest.raises(ValueError, match="`jitter` must be at least 0"):
        optimal_weights(normal(4, 2), Samples(normal(9, 2)).embed(SquaredExponential(1.0)), jitter=-1.0)


def test_parts_of_a_mixture_must_fit():
    with pytest.raises(ValueError, match="`shares` must have one entry per sample"):
        Mixture(torch.ones(3), torch.zeros(2, 1), torch.ones(2, 1, 1))
    with pytest.raises(ValueError, match="`covs` must have shape"):
        Mixture(torch.ones(2), torch.zeros(2, 3), torch.eye(2).expand(2, 2, 2))
    with pytest.raises(ValueError, match="`cov` must have shape"):
        Gaussian(torch.zeros(3), torch.eye(2))


def test_pools_need_rules_of_one_shape():
    with pytest.raises(ValueError, match="nodes of one shape"):
        pool([Rule(torch.zeros(2, 1), torch.ones(2)), Rule(torch.zeros(2, 2), torch.ones(2))])


KERNELS = [
    None,
    SquaredExponential(0.7),
    Octaves(0.3, 5) + 3.0 * Polynomial(2, 2.0),
    Polynomial(2, 1.0),
    SquaredExponential(1e-3),
    SquaredExponential(1e3),
]


def reference_of(index):
    """One of 200 awkward references: spread, skewed, clustered, repeated, huge, tiny, degenerate, few."""
    rng = np.random.default_rng(index)
    n, d = int(rng.integers(1, 60)), int(rng.integers(1, 5))
    x = rng.normal(size=(n, d))
    shape = index % 8
    if shape == 1:
        x = np.exp(2.0 * x)
    elif shape == 2:
        x = x * 1e-3 + rng.integers(0, 3, size=(n, 1)) * 50.0
    elif shape == 3:
        x = x[rng.integers(0, max(1, n // 5), size=n)]
    elif shape == 4:
        x = x * 10.0 ** rng.uniform(-6, 6, size=d) + 10.0 ** rng.uniform(-3, 3)
    elif shape == 5:
        x[:, 0] = 3.0
    elif shape == 6:
        x = rng.standard_cauchy(size=(n, d))
    elif shape == 7:
        x = np.repeat(x[:, :1], d, axis=1)
    weights = rng.uniform(size=n) + 1e-3 if index % 3 == 0 else None
    dtype = torch.float32 if index % 5 == 0 else torch.float64
    return Samples(torch.as_tensor(x, dtype=dtype), weights), KERNELS[index % len(KERNELS)]


@pytest.mark.filterwarnings("ignore::amsip.wild.WildDraws")
@pytest.mark.parametrize("block", range(10))
def test_no_awkward_reference_makes_reweighting_worse_than_equal_weights(block):
    for index in range(20 * block, 20 * block + 20):
        reference, kernel = reference_of(index)
        for m in (1, 5, 16):
            rule = quadrature(
                reference, m, kernel=kernel, node_map=None, generator=torch.Generator().manual_seed(index)
            )
            assert bool(torch.isfinite(rule.nodes).all() & torch.isfinite(rule.weights).all()), index
            equal = torch.full_like(rule.weights, 1.0 / m)
            floor = mmd2(rule.nodes.double(), equal.double(), rule.embedding)
            score = mmd2(rule.nodes.double(), rule.weights.double(), rule.embedding)
            size = rule.embedding.kernel.diagonal(rule.nodes.double()).max()
            assert score <= floor + 1e-9 * (1.0 + floor + size), index
            assert rule.total.item() == pytest.approx(1.0, abs=1e-6 * (1.0 + rule.weights.abs().sum().item())), index


def test_a_chart_of_the_wrong_size_does_not_pass_silently():
    chart = Whitening.of_samples(normal(20, 3))
    with pytest.raises(RuntimeError):
        Samples(normal(9, 2)).embed(Whitened(SquaredExponential(1.0), chart))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "rbf"}, r"`kernel` must be a Kernel, such as `amsip.SquaredExponential\(0.5\)`: got str"),
        ({"kernel": SquaredExponential}, r"`kernel` must be .*: got the class SquaredExponential"),
        ({"node_map": Descent}, r"`node_map` must be .*: got the class Descent"),
        ({"node_map": "universal"}, r"`node_map` must be .*`amsip.load_map\(\"universal\"\)`: got str"),
    ],
)
def test_names_are_not_kernels_or_maps(wrong, message):
    with pytest.raises(TypeError, match=message):
        quadrature(torch.randn(20, 2), 4, **wrong)


def test_seeds_come_from_a_reference():
    with pytest.raises(
        TypeError, match=r"`reference` must be a Reference, such as `amsip.Samples\(draws\)`: got Tensor"
    ):
        draw_seeds(torch.randn(20, 2), 4)
