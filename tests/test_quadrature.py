import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import clouds, few, fewest, gaussians, rng_seeds, samples

from amsip import (
    Gaussian,
    Mixture,
    Octaves,
    Polynomial,
    Samples,
    SquaredExponential,
    Whitened,
    Whitening,
    draw_seeds,
    mmd2,
    quadrature,
)
from amsip.defaults import default_kernel
from amsip.quadrature import emit
from amsip.rules import EMISSIONS


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def state(rng_seed=0):
    return torch.Generator().manual_seed(rng_seed)


def towards_mean(nodes, embedding):
    """A toy map: half a step of classical mean shift."""
    mean, grad = embedding.mean_and_grad(nodes)
    return nodes + 0.25 * grad / mean[..., None].clamp_min(1e-300)


def broken(nodes, embedding):
    return torch.full_like(nodes, torch.nan)


def wild(nodes, embedding):
    return nodes + 1e6


@fewest
@given(st.one_of(samples(low=2, dim=2), gaussians(2)), rng_seeds, st.integers(1, 9))
def test_no_emission_is_worse_than_its_seeds_at_equal_weights(reference, rng_seed, m):
    seeds = draw_seeds(reference, m, generator=state(rng_seed))
    for node_map in (None, towards_mean, wild, broken):
        rule = quadrature(reference, m, node_map=node_map, generator=state(rng_seed))
        floor = mmd2(seeds, torch.full_like(seeds[..., 0], 1.0 / m), rule.embedding)
        assert rule.mmd2 <= floor + 1e-8 * (1.0 + floor)


@fewest
@given(clouds(low=5, high=40, dim=2), rng_seeds)
def test_a_map_never_makes_it_worse_than_no_map(draws, rng_seed):
    with_map, without = (
        quadrature(draws, 5, node_map=node_map, generator=state(rng_seed)) for node_map in (towards_mean, None)
    )
    assert with_map.mmd2 <= without.mmd2 + 1e-8 * (1.0 + without.mmd2)


def test_a_useful_map_is_kept_and_said_to_be():
    rule = quadrature(normal(500, 2), 8, kernel=SquaredExponential(1.0), node_map=towards_mean, generator=state())
    assert EMISSIONS[rule.emission.item()] in ("moved nodes", "reweighted seeds")
    contracted = quadrature(
        Samples(normal(500, 1)), 1, kernel=SquaredExponential(1.0), node_map=towards_mean, generator=state(3)
    )
    assert EMISSIONS[contracted.emission.item()] == "moved nodes"


@pytest.mark.parametrize("node_map", [broken, wild])
def test_a_harmful_map_is_not_kept(node_map):
    rule = quadrature(normal(50, 2), 4, node_map=node_map, generator=state())
    assert EMISSIONS[rule.emission.item()] != "moved nodes"
    assert bool(torch.isfinite(rule.nodes).all())


def test_one_broken_query_spoils_no_other():
    def half_broken(nodes, embedding):
        moved = towards_mean(nodes, embedding)
        moved[0] = torch.nan
        return moved

    draws = normal(2, 200, 1)
    rule = quadrature(draws, 1, kernel=SquaredExponential(1.0), node_map=half_broken, generator=state(3))
    assert bool(torch.isfinite(rule.nodes).all())
    assert EMISSIONS[rule.emission[0].item()] != "moved nodes"
    assert EMISSIONS[rule.emission[1].item()] == "moved nodes"


def test_reweighted_nodes_are_draws():
    draws = normal(30, 2)
    rule = quadrature(draws, 6, node_map=None, generator=state())
    gaps = (rule.nodes[:, None] - draws).abs().amax(-1)
    assert gaps.amin(-1).max() < 1e-12


def test_many_nodes_get_the_mean_and_covariance_of_the_draws():
    draws = normal(2000, 3) @ torch.tensor([[2.0, 0.3, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.1]]).double() + 5.0
    rule = quadrature(draws, 64, node_map=None, generator=state())
    mean, cov = Samples(draws).moments()
    assert torch.allclose(rule.mean(), mean, rtol=1e-3, atol=1e-3)
    assert torch.allclose(rule.cov(), cov, rtol=2e-2, atol=2e-2)


@few
@given(rng_seeds, st.floats(0.5, 4.0))
def test_the_weights_sum_to_the_total(rng_seed, total):
    rule = quadrature(normal(60, 2), 7, node_map=None, generator=state(rng_seed), total=total)
    assert rule.total.item() == pytest.approx(total, rel=1e-8)


def test_the_same_generator_gives_the_same_rule_and_another_another():
    draws = normal(60, 2)
    first, again, other = (quadrature(draws, 7, node_map=None, generator=state(s)) for s in (1, 1, 2))
    assert torch.equal(first.nodes, again.nodes)
    assert torch.equal(first.weights, again.weights)
    assert not torch.equal(first.nodes, other.nodes)


@few
@given(rng_seeds)
def test_affine_changes_of_the_draws_change_the_nodes_alike(rng_seed):
    draws, scale = normal(80, 2, rng_seed=rng_seed), torch.tensor([1e-2, 50.0]).double()
    plain = quadrature(draws, 6, node_map=None, generator=state(rng_seed))
    moved = quadrature(draws * scale + 3.0, 6, node_map=None, generator=state(rng_seed))
    assert torch.allclose(moved.nodes, plain.nodes * scale + 3.0, rtol=1e-8, atol=1e-8)
    assert torch.allclose(moved.weights, plain.weights, rtol=1e-5, atol=1e-7)


def test_queries_are_solved_apart():
    draws = normal(3, 50, 2) * torch.tensor([1.0, 10.0, 0.1])[:, None, None]
    seeds = draws[:, :6]
    together = emit(Samples(draws), seeds, default_kernel(Samples(draws)), towards_mean)
    for i in range(3):
        alone = emit(Samples(draws[i]), seeds[i], default_kernel(Samples(draws[i])), towards_mean)
        assert torch.allclose(together.nodes[i], alone.nodes, rtol=1e-7, atol=1e-9)
        assert torch.allclose(together.weights[i], alone.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "reference",
    [
        Samples(normal(50, 2), torch.arange(1.0, 51.0)),
        Gaussian(torch.ones(2).double(), torch.tensor([[2.0, 0.5], [0.5, 1.0]]).double()),
        Mixture(torch.ones(2), normal(2, 2), torch.eye(2).double().expand(2, 2, 2)),
    ],
    ids=["samples", "gaussian", "mixture"],
)
def test_every_reference_is_integrated(reference):
    rule = quadrature(reference, 24, node_map=None, generator=state())
    mean = reference.moments()[0]
    assert (rule.mean() - mean).abs().max() < 0.05
    assert rule.mmd2 == pytest.approx(
        mmd2(rule.nodes, rule.weights, reference.embed(default_kernel(reference))).item(), abs=1e-9
    )


def test_a_whitened_kernel_is_worked_in_its_chart_and_scored_outside_it():
    reference = Samples(normal(60, 2) * torch.tensor([100.0, 0.01]).double())
    kernel = Whitened(Octaves(0.5, 3) + Polynomial(2, 2.0), Whitening.of_moments(*reference.moments()))
    rule = quadrature(reference, 6, kernel=kernel, node_map=None, generator=state())
    inner = reference.whiten(kernel.whitening).embed(kernel.kernel)
    expected = mmd2(kernel.whitening.forward(rule.nodes), rule.weights, inner)
    assert torch.allclose(rule.mmd2, expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rule_has_the_precision_of_the_draws(dtype):
    rule = quadrature(normal(200, 2).to(dtype), 16, node_map=None, generator=state())
    assert rule.nodes.dtype == rule.weights.dtype == dtype
    assert rule.mmd2 < 0.05


def test_no_graph_is_left_behind():
    # nodes that kept the graph of their chart alone would have gradients, and wrong ones
    rule = quadrature(normal(50, 2).requires_grad_(), 5, node_map=None, generator=state())
    assert not rule.weights.requires_grad
    assert not rule.nodes.requires_grad


def test_no_map_sends_a_node_out_of_the_posteriors_reach():
    draws = torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def runaway(nodes, embedding):
        moved = 0.9 * nodes
        moved[..., 3, :] = torch.tensor([60.0, 0.0], dtype=nodes.dtype)
        return moved

    rule = quadrature(draws, 8, node_map=runaway, generator=torch.Generator().manual_seed(1))
    assert rule.nodes.norm(dim=-1).max() < 8.0
