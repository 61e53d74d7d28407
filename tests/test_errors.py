"""Stated errors: the jackknife by brute force, and coverage on posteriors the calibration never saw."""

import pytest
import torch

from amsip import Gaussian, Samples, SquaredExponential, quadrature
from amsip.errors import Evidence, evidence
from amsip.weights import unit_sum_weights

DTYPE = torch.float64


def krige(gram, y, keep, leave):
    """Ordinary kriging of node `leave` from the nodes `keep`, by its bordered linear system."""
    n = len(keep)
    system = torch.zeros(n + 1, n + 1, dtype=DTYPE)
    system[:n, :n] = gram[keep][:, keep] + 1e-10 * torch.eye(n, dtype=DTYPE)
    system[:n, n] = system[n, :n] = 1.0
    right = torch.cat([gram[keep, leave], torch.ones(1, dtype=DTYPE)])
    return torch.linalg.solve(system, right)[:n] @ y[keep]


def test_jackknife_is_leaving_one_node_out_at_a_time():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(9, 2, generator=generator, dtype=DTYPE)
    w = torch.rand(9, generator=generator, dtype=DTYPE)
    w, y = w / w.sum(), torch.sin(2 * z[:, 0]) + z[:, 1] ** 2
    kernel = SquaredExponential(1.0)
    gram = kernel.gram(z)
    expected = 0.0
    for j in range(9):
        keep = [i for i in range(9) if i != j]
        expected += (w[j] * (y[j] - krige(gram, y, keep, j))) ** 2
    assert evidence(z, w, y, kernel).jackknife.item() == pytest.approx(expected.item(), rel=1e-6)


def test_leaving_a_node_out_changes_the_estimate_by_its_weighted_residual():
    # the identity behind the jackknife: re-solved weights without node j differ by exactly w_j r_j
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(7, 2, generator=generator, dtype=DTYPE)
    kernel, y = SquaredExponential(1.5), z[:, 0].exp()
    embedding = Gaussian(torch.zeros(2, dtype=DTYPE), torch.eye(2, dtype=DTYPE)).embed(kernel)
    full = unit_sum_weights(kernel.gram(z), embedding.mean(z)) @ y
    keep = [0, 1, 2, 4, 5, 6]
    rest = unit_sum_weights(kernel.gram(z[keep]), embedding.mean(z[keep])) @ y[keep]
    w = unit_sum_weights(kernel.gram(z), embedding.mean(z))
    residual = y[3] - krige(kernel.gram(z), y, keep, 3)
    assert (full - rest).item() == pytest.approx((w[3] * residual).item(), rel=1e-5)


def test_scale_and_shift_of_the_integrand_carry_through():
    draws = torch.randn(500, 3, generator=torch.Generator().manual_seed(2), dtype=DTYPE)
    rule = quadrature(draws, 16, generator=torch.Generator().manual_seed(0))
    plain = rule.estimate(lambda x: x[:, 0].cos())
    scaled = rule.estimate(lambda x: 100.0 + 7.0 * x[:, 0].cos())
    assert scaled.quadrature_error.item() == pytest.approx(7.0 * plain.quadrature_error.item(), rel=1e-6)
    assert scaled.value.item() == pytest.approx(100.0 + 7.0 * plain.value.item(), rel=1e-9)
    assert scaled.equivalent_draws.item() == pytest.approx(plain.equivalent_draws.item(), rel=1e-6)


def test_the_reference_bounds_what_draws_a_rule_can_be_worth():
    draws = torch.randn(3, 500, 2, generator=torch.Generator().manual_seed(3), dtype=DTYPE)
    found = quadrature(draws, 32, generator=torch.Generator().manual_seed(0)).estimate(lambda x: x**2)
    assert found.value.shape == found.equivalent_draws.shape == (3, 2)
    assert (found.equivalent_draws <= 500.0 + 1e-6).all()
    fewer = quadrature(draws, 32, generator=torch.Generator().manual_seed(0)).estimate(lambda x: x**2, draws=50.0)
    assert (fewer.equivalent_draws <= 50.0 + 1e-6).all()


def test_weighted_draws_count_for_less():
    atoms = torch.randn(400, 2, generator=torch.Generator().manual_seed(4), dtype=DTYPE)
    weights = torch.ones(400, dtype=DTYPE)
    weights[:4] = 1000.0
    rule = quadrature(Samples(atoms, weights), 4, generator=torch.Generator().manual_seed(0))
    assert rule.embedding.effective_draws.item() < 5.0


def test_rough_and_constant_integrands_are_flagged():
    draws = torch.randn(2000, 2, generator=torch.Generator().manual_seed(5), dtype=DTYPE)
    rule = quadrature(draws, 32, generator=torch.Generator().manual_seed(0))
    assert not rule.estimate(lambda x: x[:, 0].cos()).rough
    assert rule.estimate(lambda x: torch.sin(60.0 * x[:, 0])).rough
    assert rule.estimate(lambda x: (x[:, 0] > 50.0).to(x)).rough


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_probability_is_estimated_and_not_counted(dtype):
    # weights cast to the values' dtype: every signed weight would count as one, or as none
    draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(6), dtype=DTYPE)
    rule = quadrature(draws, 16, generator=torch.Generator().manual_seed(0))
    found = rule.estimate(lambda x: (x[:, 0] > 0.3).to(dtype))
    assert found.value.item() == pytest.approx(rule.expect(lambda x: (x[:, 0] > 0.3).double()).item(), abs=1e-12)


def test_one_node_has_no_finite_error_and_no_draws_are_refused():
    draws = torch.randn(100, 2, generator=torch.Generator().manual_seed(7), dtype=DTYPE)
    rule = quadrature(draws, 1, generator=torch.Generator().manual_seed(0))
    found = rule.estimate(lambda x: x.exp())
    assert torch.isinf(found.standard_error).all()
    assert found.rough.all()
    assert torch.equal(found.equivalent_draws, torch.zeros(2, dtype=DTYPE))
    for draws in (0.0, -3.0, float("nan")):
        with pytest.raises(ValueError, match="`draws` must be positive"):
            rule.estimate(lambda x: x.exp(), draws=draws)


def test_values_that_are_not_numbers_are_flagged():
    draws = torch.randn(100, 2, generator=torch.Generator().manual_seed(8), dtype=DTYPE)
    assert quadrature(draws, 8, generator=torch.Generator().manual_seed(0)).estimate(lambda x: x[:, 0].log()).rough


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::amsip.wild.WildDraws")
def test_coverage_on_densities_outside_the_calibration():
    generator = torch.Generator().manual_seed(6)
    within = []
    for d in (2, 5):
        draws = torch.randn(12, 1500, d, generator=generator, dtype=DTYPE)
        draws = torch.cat([draws[..., :1], draws[..., 1:] * (0.4 + draws[..., :1].square())], -1)
        rule = quadrature(draws, 32, generator=generator)
        for f in (lambda x: torch.tanh(2 * x).sum(-1), lambda x: x.abs().amax(-1), lambda x: (x[..., 0] - 1).abs()):
            found = rule.estimate(lambda x, f=f: f(x))
            within.append((f(draws).mean(-1) - found.value).abs() < 2.0 * found.quadrature_error)
    assert 0.75 < torch.stack(within).double().mean() <= 1.0


def test_the_trend_in_the_budget_ends_where_the_calibration_did():
    one = torch.ones(1, dtype=DTYPE)

    def at(m):
        return Evidence(one, 0.1 * one / m, one, 0.9 * one).features(m, 2)

    assert torch.allclose(at(1024), at(128))
    assert torch.allclose(at(2), at(8))
    assert not torch.allclose(at(8), at(128))
