"""The three propositions of the paper, and its remark on pooling, as tests."""

import math

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import bandwidths, few, fewest, gaussians, mixtures, rng_seeds, samples

from amsip import Gaussian, Mixture, Octaves, Polynomial, Rule, Samples, SquaredExponential, mmd2, optimal_weights
from amsip.maps.meanshift import MeanShift, classical_mean_shift, interacting_shift
from amsip.references.embeddings import AtomsEmbedding
from amsip.rules import pool
from amsip.weights import mean_shift_weights, uniform_weights


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def spread_nodes(m, d, rng_seed):
    """Nodes that do not nearly coincide."""
    return normal(m, d, rng_seed=rng_seed) + 2.0 * torch.eye(max(m, d)).double()[:m, :d]


def settled(z, embedding):
    """A fixed point of the map, iterated until it stands still."""
    for _ in range(60):
        before, z = z, MeanShift(steps=20, damping=1.0, jitter=1e-12)(z, embedding)
        if (z - before).abs().max() < 1e-10:
            return z
    raise AssertionError("the mean shift has not settled")


TARGETS = {
    "gaussian": Gaussian(torch.zeros(2).double(), torch.tensor([[1.0, 0.4], [0.4, 0.7]]).double()),
    "mixture": Mixture(
        torch.tensor([0.4, 0.6]).double(),
        torch.tensor([[-1.5, 0.0], [1.5, 0.5]]).double(),
        torch.stack([0.5 * torch.eye(2), torch.tensor([[0.8, -0.2], [-0.2, 0.4]])]).double(),
    ),
    "samples": Samples(normal(60, 2), torch.linspace(1.0, 3.0, 60)),
}


class TestFirst:
    """The map and the rescaled weights do not see the total mass of the reference."""

    @fewest
    @given(samples(low=2, dim=2), bandwidths, st.floats(1e-6, 1e6), rng_seeds)
    def test_atoms_of_any_mass_give_the_same_step_and_weights(self, reference, h, mass, rng_seed):
        kernel, z = SquaredExponential(h), spread_nodes(4, 2, rng_seed)
        alpha = reference.normalised_weights
        one, many = (AtomsEmbedding(kernel, reference.moments(), reference.atoms, c * alpha) for c in (1.0, mass))
        assert torch.allclose(many.mean(z), mass * one.mean(z), rtol=1e-10)
        steps = [interacting_shift(z, kernel, *e.mean_and_grad(z)) for e in (one, many)]
        assert torch.allclose(*steps, rtol=1e-5, atol=1e-7 * (1.0 + steps[0].abs().max().item()))
        factor = kernel.gram(z) + 1e-10 * torch.eye(4)
        if torch.linalg.solve(factor, one.mean(z)).sum() > 1e-3:
            w = [mean_shift_weights(z, e) for e in (one, many)]
            assert torch.allclose(*w, rtol=1e-6, atol=1e-8 * w[0].abs().max().item())

    @few
    @given(mixtures(2), st.floats(1e-6, 1e6), rng_seeds)
    def test_unnormalised_readings_give_the_same_step(self, reference, mass, rng_seed):
        embedding, z = reference.embed(SquaredExponential(1.0)), spread_nodes(5, 2, rng_seed)
        mean, grad = embedding.mean_and_grad(z)
        first = interacting_shift(z, embedding.kernel, mean, grad)
        second = interacting_shift(z, embedding.kernel, mass * mean, mass * grad)
        assert torch.allclose(first, second, rtol=1e-6, atol=1e-8 * (1.0 + first.abs().max().item()))


class TestSecond:
    """Reweighting is never worse than equal weights, at the nodes in hand and at every budget."""

    @fewest
    @given(st.one_of(samples(low=2, dim=2), gaussians(2), mixtures(2)), bandwidths, rng_seeds)
    def test_at_every_budget_whatever_the_nodes(self, reference, h, rng_seed):
        for kernel in (SquaredExponential(h), Octaves(h, 3) + 3.0 * Polynomial(2, 2.0)):
            embedding = reference.embed(kernel)
            for m in (1, 2, 5, 13):
                z = reference.sample(m, generator=torch.Generator().manual_seed(rng_seed % 2**31))
                floor = mmd2(z, uniform_weights(z), embedding).item()
                assert mmd2(z, optimal_weights(z, embedding), embedding).item() <= floor + 1e-9 * (1.0 + floor)

    @few
    @given(st.integers(3, 7), bandwidths, st.floats(0.3, 3.0))
    def test_with_equality_where_equal_weights_are_optimal(self, m, h, radius):
        # a regular polygon about an isotropic target: no node is special
        angle = 2.0 * math.pi * torch.arange(m).double() / m
        z = radius * torch.stack([angle.cos(), angle.sin()], -1)
        embedding = Gaussian(torch.zeros(2).double(), torch.eye(2).double()).embed(SquaredExponential(h))
        w = optimal_weights(z, embedding, jitter=1e-8)
        assert torch.allclose(w, uniform_weights(z), atol=1e-6)

    def test_and_strictly_better_for_almost_all_draws(self):
        reference = TARGETS["gaussian"]
        embedding = reference.embed(SquaredExponential(0.7))
        z = torch.stack([reference.sample(8, generator=torch.Generator().manual_seed(s)) for s in range(50)])
        gain = mmd2(z, uniform_weights(z), embedding) - mmd2(z, optimal_weights(z, embedding), embedding)
        assert bool((gain > 1e-6).all())

    def test_the_solution_is_the_papers_formula(self):
        # w = (K + eps)^-1 (mu + kappa 1), kappa from the total
        embedding, z = TARGETS["mixture"].embed(SquaredExponential(0.8)), normal(6, 2)
        ridged = embedding.kernel.gram(z).numpy() + 1e-10 * np.eye(6)
        solved = np.linalg.solve(ridged, np.stack([embedding.mean(z).numpy(), np.ones(6)], -1))
        kappa = (1.0 - solved[:, 0].sum()) / solved[:, 1].sum()
        assert np.allclose(optimal_weights(z, embedding), solved[:, 0] + kappa * solved[:, 1], rtol=1e-8)


def scale_free(z, embedding):
    """The discrepancy under the mean-shift weight rule: the weights K^-1 v_0 up to their best positive factor."""
    w = mean_shift_weights(z, embedding, jitter=1e-12)
    mean, fitted = embedding.mean(z), embedding.kernel.gram(z) @ w
    return embedding.energy - (w * mean).sum() ** 2 / (w * fitted).sum()


class TestThird:
    """Fixed points of the map are stationary points of the discrepancy under the mean-shift weight rule."""

    @pytest.mark.parametrize(("name", "m"), [("mixture", 1), ("gaussian", 2), ("samples", 2), ("mixture", 3)])
    def test_at_a_fixed_point_the_gradient_vanishes(self, name, m):
        embedding = TARGETS[name].embed(SquaredExponential(1.0))
        z = settled(spread_nodes(m, 2, 3), embedding)
        step = MeanShift(steps=1, damping=1.0, jitter=1e-12)(z, embedding) - z
        assert step.abs().max() < 1e-7
        for objective in (
            scale_free,
            lambda x, e: mmd2(x, optimal_weights(x, e, total=None, jitter=1e-12), e),
            lambda x, e: mmd2(x, optimal_weights(z, e, total=None, jitter=1e-12), e),
        ):
            point = z.clone().requires_grad_()
            start = (z + 0.2 * normal(m, 2)).requires_grad_()
            slope = torch.autograd.grad(objective(point, embedding), point)[0]
            away = torch.autograd.grad(objective(start, embedding), start)[0]
            assert slope.abs().max() < 1e-6
            assert away.abs().max() > 1e-3

    @pytest.mark.parametrize("name", TARGETS)
    def test_at_a_stationary_point_the_map_stands_still(self, name):
        embedding = TARGETS[name].embed(SquaredExponential(1.0))
        z = spread_nodes(3, 2, 5).requires_grad_()
        optimiser = torch.optim.LBFGS([z], max_iter=400, tolerance_grad=1e-11, tolerance_change=1e-15)
        optimiser.param_groups[0]["line_search_fn"] = "strong_wolfe"

        def closure():
            optimiser.zero_grad()
            value = mmd2(z, optimal_weights(z, embedding, total=None, jitter=1e-12), embedding)
            value.backward()
            return value

        optimiser.step(closure)
        with torch.no_grad():
            assert z.grad.abs().max() < 1e-7
            assert (MeanShift(steps=1, damping=1.0, jitter=1e-12)(z, embedding) - z).abs().max() < 1e-4

    @pytest.mark.parametrize("kernel", [Octaves(0.5, 3), Octaves(0.8, 3) + 0.2 * Polynomial(2, 2.0)])
    def test_for_other_kernels_through_their_shadow(self, kernel):
        embedding = Samples(normal(60, 2)).embed(kernel)
        z = settled(spread_nodes(2, 2, 3), embedding)
        point = z.clone().requires_grad_()
        slope = torch.autograd.grad(scale_free(point, embedding), point)[0]
        assert slope.abs().max() < 1e-6

    def test_damping_does_not_move_the_fixed_points(self):
        embedding = TARGETS["gaussian"].embed(SquaredExponential(1.0))
        z = settled(spread_nodes(2, 2, 3), embedding)
        for damping in (0.1, 0.5, 1.0):
            assert (MeanShift(steps=1, damping=damping, jitter=1e-12)(z, embedding) - z).abs().max() < 1e-7

    @fewest
    @given(samples(low=3, high=11, dim=2), bandwidths, rng_seeds)
    def test_the_map_is_the_ratio_written_out(self, reference, h, rng_seed):
        z = spread_nodes(3, 2, rng_seed)
        embedding = reference.embed(SquaredExponential(h))
        if torch.linalg.cond(embedding.kernel.gram(z)) > 1e5:
            return
        expected = oracles.interacting_map(z.numpy(), reference.atoms.numpy(), reference.normalised_weights.numpy(), h)
        found = MeanShift(steps=1, damping=1.0, jitter=1e-15)(z, embedding).numpy()
        assert np.allclose(found, expected, rtol=1e-6, atol=1e-7 * (1.0 + np.abs(expected).max()))

    @fewest
    @given(samples(low=3, high=11, dim=2), bandwidths, rng_seeds)
    def test_one_node_is_classical_mean_shift(self, reference, h, rng_seed):
        z, alpha = normal(1, 2, rng_seed=rng_seed), reference.normalised_weights
        expected = oracles.mean_shift_step(z[0].numpy(), reference.atoms.numpy(), alpha.numpy(), h)
        found = MeanShift(steps=1, damping=1.0)(z, reference.embed(SquaredExponential(h)))
        assert np.allclose(found[0], expected, rtol=1e-6, atol=1e-8)
        assert np.allclose(
            classical_mean_shift(z, reference.atoms, SquaredExponential(h), alpha)[0], expected, rtol=1e-9
        )


class TestPooling:
    """Remark 3: a pool is no worse than the average emission, and its mean is unbiased about theirs."""

    @fewest
    @given(st.one_of(gaussians(2), mixtures(2)), rng_seeds, st.integers(2, 5))
    def test_pooling_is_convex(self, reference, rng_seed, count):
        embedding = reference.embed(Octaves(0.5, 3))
        rules = []
        for k in range(count):
            z = reference.sample(6, generator=torch.Generator().manual_seed((rng_seed + k) % 2**31))
            rules.append(Rule(z, optimal_weights(z, embedding), embedding))
        pooled = pool(rules)
        assert pooled.total.item() == pytest.approx(1.0, abs=1e-9)
        assert pooled.mmd2 <= torch.stack([rule.mmd2 for rule in rules]).mean() + 1e-10

    def test_the_standard_error_covers_the_spread_of_pools(self):
        reference = TARGETS["gaussian"]
        embedding = reference.embed(SquaredExponential(0.7))

        def emission(rng_seed):
            z = reference.sample(6, generator=torch.Generator().manual_seed(rng_seed))
            return Rule(z, optimal_weights(z, embedding), embedding)

        estimates = [
            pool([emission(100 * r + k) for k in range(8)]).pooled_expect(lambda x: x[:, 0] ** 2) for r in range(40)
        ]
        spread = torch.stack([e.value for e in estimates]).std()
        stated = torch.stack([e.standard_error for e in estimates]).square().mean().sqrt()
        # the relative error of a standard deviation of 40 values is 11%
        assert abs(stated / spread - 1.0) < 0.4
