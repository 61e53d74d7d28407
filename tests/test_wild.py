"""A few wild draws must not decide how a rule treats the others."""

import warnings

import pytest
import torch

from amsip import Polynomial, Projected, Samples, Whitening, derivatives, quadrature
from amsip.defaults import default_kernel, whitened_kernel
from amsip.finishing import sees_covariances
from amsip.maps.curvature import mean_hessian
from amsip.subspace import leading_subspace
from amsip.wild import WildDraws, calm_chart

DTYPE = torch.float64


def calm_draws(n: int = 2000, d: int = 2, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(rng_seed), dtype=DTYPE)


def wild_draws(rng_seed: int = 0) -> torch.Tensor:
    draws = calm_draws(rng_seed=rng_seed)
    draws[7] = 1000.0
    return draws


@pytest.mark.parametrize("n", [3, 20, 2000])
def test_ordinary_draws_are_whitened_by_their_own_moments(n):
    reference = Samples(calm_draws(n, 3))
    chart, wild = calm_chart(reference)
    assert not wild
    assert torch.equal(chart.root, Whitening.of_moments(*reference.moments()).root)
    assert default_kernel(reference).kernel.terms[-1][1].scale == 3.0


def test_a_wild_draw_is_named_and_the_others_set_the_scale():
    with pytest.warns(WildDraws, match=r"row 7 carries 100% of the variance"):
        chart, wild = calm_chart(Samples(wild_draws()))
    assert wild
    clean = Whitening.of_samples(calm_draws())
    assert torch.allclose(chart.root, clean.root, atol=0.05)
    assert torch.allclose(chart.centre, clean.centre, atol=0.05)


def test_no_size_is_too_wild():
    draws = calm_draws()
    draws[0] = 1e12
    with pytest.warns(WildDraws):
        chart, _ = calm_chart(Samples(draws))
    assert torch.allclose(chart.root, torch.eye(2, dtype=DTYPE), atol=0.1)


@pytest.mark.parametrize(("n", "size"), [(25, 1e6), (40, 1e12)])
def test_few_draws_take_longer_but_get_there(n, size):
    draws = calm_draws(n, 1)
    draws[0] = size
    with pytest.warns(WildDraws):
        chart, _ = calm_chart(Samples(draws))
    assert 1.0 < (chart.root[0, 0] / draws[1:].std()) < 2.0


def test_a_query_rests_on_its_own():
    """A query that needs more rounds than its neighbour must not send it on more rounds."""
    batch = calm_draws(50, 1).reshape(2, 25, 1)
    batch[0, 0], batch[1, 3] = 1e12, 1e3
    with pytest.warns(WildDraws):
        together, _ = calm_chart(Samples(batch))
    with pytest.warns(WildDraws):
        alone, _ = calm_chart(Samples(batch[1]))
    assert torch.allclose(together.root[1], alone.root, rtol=1e-12)


def test_wild_draws_are_seen_through_a_subspace():
    square = torch.eye(2, dtype=DTYPE)
    line = leading_subspace(torch.diag(torch.tensor([9.0, 1.0], dtype=DTYPE)), square[0] * 0.0, square, rank=1)
    with pytest.warns(WildDraws, match="row 7"):
        chart, wild = calm_chart(Projected(Samples(wild_draws()), line))
    assert wild
    assert 0.8 < chart.root.item() < 1.2


def test_what_is_wild_does_not_depend_on_the_coordinates():
    turn = torch.tensor([[2.0, 0.3], [-0.1, 1e-4]], dtype=DTYPE)
    with pytest.warns(WildDraws):
        plain, _ = calm_chart(Samples(wild_draws()))
    with pytest.warns(WildDraws):
        turned, wild = calm_chart(Samples(wild_draws() @ turn.mT + 5.0))
    assert wild
    # the covariance that the chart takes for the posterior's follows the map
    assert torch.allclose(turned.root @ turned.root.mT, turn @ plain.root @ plain.root.mT @ turn.mT, rtol=1e-6)


def test_a_draw_without_weight_is_not_wild():
    weights = torch.ones(2000, dtype=DTYPE)
    weights[7] = 0.0
    assert not calm_chart(Samples(wild_draws(), weights))[1]


def test_one_wild_query_changes_nothing_for_the_others():
    batch = torch.stack([calm_draws(), wild_draws(1), calm_draws(rng_seed=2)])
    with pytest.warns(WildDraws, match=r"1 of 3 queries .* row 7"):
        kernel = default_kernel(Samples(batch))
    assert sees_covariances(kernel.kernel).tolist() == [True, False, True]
    seeds = batch[:, 100:116]
    with pytest.warns(WildDraws):
        together = quadrature(batch, 16, generator=torch.Generator().manual_seed(3))
    assert (together.mean()[0] - batch[0].mean(0)).abs().max() < 1e-9
    assert (together.mean()[1] - batch[1].mean(0)).abs().max() > 0.1
    embedding = Samples(batch).embed(kernel)
    alone = Samples(batch[0]).embed(default_kernel(Samples(batch[0])))
    assert torch.allclose(embedding.mean(seeds)[0], alone.mean(seeds[0]), rtol=1e-12)


@pytest.mark.parametrize(("size", "dtype"), [(1e3, DTYPE), (1e12, DTYPE), (1e9, torch.float32)])
def test_the_rule_serves_the_others_better_than_plain_draws(size, dtype):
    draws = calm_draws().to(dtype)
    draws[7] = size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WildDraws)
        rule = quadrature(draws.expand(20, *draws.shape), 32, generator=torch.Generator().manual_seed(1))
    values = torch.cos(1.5 * draws[:, 0] + 0.3)
    squared = (rule.expect(torch.cos(1.5 * rule.nodes[..., 0] + 0.3)) - values.mean()).square().mean()
    assert squared < 0.1 * values.var() / 32


def test_a_polynomial_with_a_scale_a_query_is_that_polynomial_query_by_query():
    generator = torch.Generator().manual_seed(5)
    x, v = (torch.randn(3, 6, 2, generator=generator, dtype=DTYPE) for _ in range(2))
    w = torch.rand(3, 6, generator=generator, dtype=DTYPE)
    for degree in (1, 2):
        scales = torch.tensor([0.5, torch.inf, 3.0], dtype=DTYPE)
        batch = Polynomial(degree, scales)
        reads = (
            lambda k, x, v, w: k(x, v),
            lambda k, x, v, w: k.gram_and_shadow(x)[1],
            lambda k, x, v, w: k.diagonal(x),
            lambda k, x, v, w: k.weighted_grad(x, v, w),
            lambda k, x, v, w: derivatives.gram_grad(k, x),
            lambda k, x, v, w: derivatives.derivative_gram(k, x, w),
            lambda k, x, v, w: derivatives.derivative_product(k, x, v),
            lambda k, x, v, w: derivatives.derivative_diagonal(k, x),
            lambda k, x, v, w: derivatives.directional_sum(k, x, v),
            lambda k, x, v, w: derivatives.weighted_hessian(k, x, v, w),
            lambda k, x, v, w: Samples(v, w).embed(k).energy,
            lambda k, x, v, w: Samples(v, w).embed(k).mean(x),
            lambda k, x, v, w: mean_hessian(Samples(v, w).embed(k), x),
        )
        for read in reads:
            found = read(batch, x, v, w)
            for q, scale in enumerate(scales.tolist()):
                assert torch.allclose(found[q], read(Polynomial(degree, scale), x[q], v[q], w[q]), rtol=1e-12)


def test_an_infinite_scale_sees_nothing():
    x = calm_draws(5)
    assert not Polynomial(2, float("inf")).gram(x).any()
    assert not sees_covariances(whitened_kernel(2, torch.tensor(True)))
