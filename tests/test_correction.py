import math

import numpy as np
import pytest
import torch

from amsip import Gaussian, InverseMultiquadric, Mixture, Octaves, Rule, SquaredExponential, Whitening, optimal_weights
from amsip.correction import REGIMES, stein_correction, stein_gram
from amsip.maps.descent import Descent


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


def gaussian(d: int = 2) -> Gaussian:
    a = points(d, d, rng_seed=1)
    return Gaussian(points(d, rng_seed=2), a @ a.mT + 0.3 * torch.eye(d, dtype=torch.float64))


def equal(nodes: torch.Tensor) -> Rule:
    return Rule(nodes, torch.full_like(nodes[..., 0], 1.0 / nodes.shape[-2]))


def draws(reference, *shape: int, rng_seed: int = 0) -> torch.Tensor:
    total = int(np.prod(shape))
    return reference.sample(total, generator=torch.Generator().manual_seed(rng_seed)).reshape(*shape, -1)


@pytest.mark.parametrize("kernel", [SquaredExponential(0.8), InverseMultiquadric(1.3), Octaves(0.7, 2)])
def test_the_stein_gram_is_the_operator_applied_twice(kernel):
    """Each entry against automatic derivatives of k, term by term."""
    reference, x = gaussian(), points(4, 2)
    scores = reference.score(x)
    gram = stein_gram(x, scores, kernel)
    for i in range(4):
        for j in range(4):

            def value(a, b):
                return kernel(a[None], b[None])[0, 0]

            both = torch.func.jacrev(torch.func.grad(value), argnums=1)(x[i], x[j])
            left, right = torch.func.grad(value, argnums=(0, 1))(x[i], x[j])
            expected = both.trace() + left @ scores[j] + right @ scores[i] + value(x[i], x[j]) * (scores[i] @ scores[j])
            torch.testing.assert_close(gram[i, j], expected, rtol=1e-8, atol=1e-9)


def test_its_functions_integrate_to_zero():
    """Stein's identity under a Gaussian: the average of k_0(., y) over many draws is zero within five errors."""
    reference = gaussian()
    x = torch.cat([points(3, 2), draws(reference, 1000)])
    gram = stein_gram(x, reference.score(x), InverseMultiquadric(1.0))[3:, :3]
    errors = gram.std(0) / 1000**0.5
    assert (gram.mean(0).abs() < 5.0 * errors).all()


def test_sharpens_draws_of_a_smooth_integrand_and_says_so():
    reference = Mixture(
        torch.ones(2), torch.tensor([[-0.4, 0.0], [0.6, 0.3]]).double(), 0.5 * torch.eye(2).double().expand(2, 2, 2)
    )
    rule = equal(draws(reference, 30, 40))
    corrected = stein_correction(rule, lambda x: torch.sin(x[:, 0]) + x[:, 1] ** 2, reference.score)
    grid = draws(reference, 400_000, rng_seed=9)
    truth = (torch.sin(grid[:, 0]) + grid[:, 1] ** 2).mean()
    plain, value = ((v - truth).square().mean() for v in (corrected.plain, corrected.value))
    assert value < 0.2 * plain
    assert (corrected.regime == REGIMES.index("helpful")).double().mean() > 0.8


def test_silent_on_a_tight_rule():
    reference = gaussian()
    embedding = reference.embed(SquaredExponential(3.0))
    nodes = Descent(steps=30)(draws(reference, 16), embedding)
    rule = Rule(nodes, optimal_weights(nodes, embedding), embedding)
    corrected = stein_correction(rule, lambda x: x[:, 0], reference.score)
    assert corrected.silent.item()
    assert not corrected.harmful.item()


def test_silent_on_a_constant():
    reference = gaussian()
    corrected = stein_correction(equal(draws(reference, 7)), lambda x: torch.ones_like(x[:, 0]), reference.score)
    assert corrected.silent.item()
    assert corrected.value.item() == pytest.approx(1.0)


def test_harmful_with_few_nodes_and_advises_the_plain_value():
    reference = gaussian(5)
    f = lambda x: torch.cos(9.0 * x).sum(-1)  # noqa: E731
    corrected = stein_correction(equal(draws(reference, 20, 3)), f, reference.score)
    assert corrected.harmful.double().mean() > 0.5
    assert torch.equal(corrected.advised[corrected.harmful], corrected.plain[corrected.harmful])
    assert torch.equal(corrected.advised[~corrected.harmful], corrected.value[~corrected.harmful])


def test_harmful_between_modes_that_stand_apart():
    means = torch.tensor([[-1.0, 0.0], [1.5, 0.5]], dtype=torch.float64)
    reference = Mixture(torch.ones(2), means, 0.2 * torch.eye(2, dtype=torch.float64).expand(2, 2, 2))
    corrected = stein_correction(equal(draws(reference, 100, 17)), lambda x: torch.sin(x[:, 0]), reference.score)
    truth = 0.5 * math.exp(-0.1) * torch.sin(means[:, 0]).sum()
    errors = [(v - truth).square().mean() for v in (corrected.plain, corrected.value, corrected.advised)]
    assert errors[1] > 4.0 * errors[0]
    assert corrected.harmful.double().mean() > 0.8
    assert errors[2] < 2.0 * errors[0]


def test_harmful_off_support():
    reference = gaussian()
    away = draws(reference, 30) + 12.0 * reference.cov.diagonal().sqrt()
    corrected = stein_correction(equal(away), lambda x: x[:, 0] ** 2, reference.score)
    assert corrected.misplacement.item() > 4.0
    assert corrected.harmful.item()


def test_one_node_cannot_be_judged():
    reference = gaussian()
    corrected = stein_correction(equal(draws(reference, 1)), lambda x: x[:, 0], reference.score)
    assert REGIMES[corrected.regime] in ("harmful", "silent")


def test_draws_are_not_called_misplaced():
    reference = gaussian(3)
    corrected = stein_correction(equal(draws(reference, 50, 32)), lambda x: x[:, 0], reference.score)
    assert 0.5 < corrected.misplacement.mean().item() < 1.6


def test_left_out_predictions_are_those_of_refitting():
    reference = gaussian()
    nodes = draws(reference, 6)
    f = lambda x: torch.tanh(x[:, 0] - x[:, 1])  # noqa: E731
    kernel, ridge = InverseMultiquadric(1.0), 1e-9
    corrected = stein_correction(equal(nodes), f, reference.score, kernel=kernel, ridge=ridge)
    gram = stein_gram(nodes, reference.score(nodes), kernel).numpy()
    h = f(nodes).numpy()
    missed = spread = 0.0
    for i in range(6):
        keep = [j for j in range(6) if j != i]
        inner = gram[np.ix_(keep, keep)] + ridge * np.trace(gram) / 6 * np.eye(5)
        system = np.block([[inner, np.ones((5, 1))], [np.ones((1, 5)), np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(h[keep], 0.0))
        missed += (h[i] - gram[i, keep] @ solution[:5] - solution[5]) ** 2
        spread += (h[i] - h[keep].mean()) ** 2
    assert corrected.explained.item() == pytest.approx(1.0 - missed / spread, rel=1e-6)


def test_units_do_not_matter_in_the_chart_of_the_reference():
    scale = torch.tensor([1e-3, 1e4], dtype=torch.float64)
    reference = gaussian()
    scaled = Gaussian(scale * reference.mean, scale[:, None] * reference.cov * scale)
    nodes = draws(reference, 9)
    here = stein_correction(
        equal(nodes),
        lambda x: x[:, 0] ** 2,
        reference.score,
        whitening=Whitening(torch.zeros(2), torch.eye(2), torch.eye(2)),
    )
    chart = Whitening(torch.zeros(2, dtype=torch.float64), torch.diag(scale), torch.diag(1.0 / scale))
    there = stein_correction(equal(scale * nodes), lambda x: (x[:, 0] / scale[0]) ** 2, scaled.score, whitening=chart)
    assert there.value.item() == pytest.approx(here.value.item(), rel=1e-6)


def test_several_outputs_and_queries_are_singles_side_by_side():
    reference = gaussian()
    rule = equal(draws(reference, 3, 7))
    f = lambda x: torch.stack([x[:, 0], x[:, 1] ** 2], -1)  # noqa: E731
    both = stein_correction(rule, f, reference.score)
    assert both.value.shape == both.regime.shape == (3, 2)
    for i in range(3):
        single = stein_correction(equal(rule.nodes[i]), lambda x: x[:, 1] ** 2, reference.score)
        torch.testing.assert_close(both.value[i, 1], single.value, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(both.explained[i, 1], single.explained, rtol=1e-8, atol=1e-9)


def test_refuses_a_score_of_another_shape():
    with pytest.raises(ValueError, match="score"):
        stein_correction(equal(points(3, 2)), lambda x: x[:, 0], lambda x: x[..., 0])
