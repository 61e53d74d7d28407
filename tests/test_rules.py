import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import clouds, few, rng_seeds, some

from amsip import Gaussian, Rule, Samples, SquaredExponential, mmd2, optimal_weights
from amsip.rules import Estimate, pool
from amsip.weights import simplex_weights


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def signed_rule(*batch, m=5, d=3, rng_seed=0):
    return Rule(normal(*batch, m, d, rng_seed=rng_seed), normal(*batch, m, rng_seed=rng_seed + 1))


def positive_rule(m=7, d=2):
    return Rule(normal(m, d), normal(m, rng_seed=1).abs())


@some
@given(clouds(), rng_seeds, st.floats(-3.0, 3.0))
def test_expectations_are_linear(z, rng_seed, factor):
    rule = Rule(z, normal(z.shape[0], rng_seed=rng_seed))
    f, g = (lambda x: x.sin().sum(-1)), (lambda x: x.square().sum(-1))
    both = rule.expect(lambda x: f(x) + factor * g(x))
    assert torch.allclose(both, rule.expect(f) + factor * rule.expect(g), rtol=1e-10, atol=1e-10)


@few
@given(clouds(), rng_seeds, st.floats(-3.0, 3.0))
def test_constants_are_exact_up_to_the_total(z, rng_seed, value):
    rule = Rule(z, normal(z.shape[0], rng_seed=rng_seed))
    assert torch.allclose(rule.expect(lambda x: torch.full_like(x[:, 0], value)), value * rule.total, atol=1e-12)


@few
@given(rng_seeds)
def test_expectations_do_not_see_the_order_of_nodes(rng_seed):
    rule = signed_rule(rng_seed=rng_seed)
    order = torch.as_tensor(np.random.default_rng(rng_seed).permutation(5))
    shuffled = Rule(rule.nodes[order], rule.weights[order])
    assert torch.allclose(rule.expect(lambda x: x.exp()), shuffled.expect(lambda x: x.exp()), rtol=1e-9, atol=1e-11)
    assert torch.allclose(rule.cov(), shuffled.cov(), rtol=1e-8, atol=1e-10)


def test_mean_and_covariance_are_expectations():
    rule = signed_rule(2)
    assert torch.allclose(rule.mean(), rule.expect(lambda x: x))
    gaps = rule.nodes - rule.mean()[:, None]
    for i in range(2):
        expected = sum(w * torch.outer(g, g) for w, g in zip(rule.weights[i], gaps[i], strict=True))
        assert torch.allclose(rule.cov()[i], expected)


def test_the_integrand_is_called_once_on_all_nodes():
    calls = []

    def f(x):
        calls.append(tuple(x.shape))
        return x[:, :2]

    assert signed_rule(2).expect(f).shape == (2, 2)
    assert calls == [(10, 3)]


def test_values_computed_beforehand_are_averaged():
    rule = signed_rule(2)
    assert torch.allclose(rule.expect(rule.nodes.sum(-1)), rule.expect(lambda x: x.sum(-1)))
    assert torch.allclose(rule.expect(rule.nodes), rule.mean())


def test_yes_or_no_integrands_give_probabilities():
    rule = positive_rule()
    assert torch.allclose(rule.expect(lambda x: x[:, 0] > 0), rule.weights[rule.nodes[:, 0] > 0].sum())


def test_arrays_are_accepted_as_the_answer_of_an_integrand():
    rule = signed_rule()
    assert torch.allclose(rule.expect(lambda x: x.numpy().sum(-1)), rule.expect(lambda x: x.sum(-1)))


@pytest.mark.parametrize("form", [lambda v: v.numpy(), lambda v: v.tolist(), lambda v: v.numpy()[::-1][::-1]])
def test_values_are_taken_as_arrays_and_lists_in_double_precision(form):
    # lists would be read in single precision, and arrays taken for functions
    rule = signed_rule()
    values = rule.nodes.exp().sum(-1)
    exact = rule.expect(values)
    for f in (form(values), lambda x: form(x.exp().sum(-1))):
        assert rule.expect(f).dtype == torch.float64
        assert abs(rule.expect(f) - exact) < 1e-14 * (rule.weights * values).abs().sum()


@pytest.mark.parametrize("values", ["model.py", [1j] * 5])
def test_values_that_are_not_numbers_are_refused(values):
    with pytest.raises(TypeError, match="values of `f` must be real numbers"):
        signed_rule().expect(values)


@pytest.mark.parametrize("f", [lambda x: x[:1, 0], lambda x: x.sum(), lambda x: x[None]])
def test_integrands_of_another_shape_are_refused(f):
    with pytest.raises(ValueError, match="`f` must map points of shape"):
        signed_rule().expect(f)


def test_an_integrand_that_works_in_place_moves_no_node():
    rule = signed_rule()
    before = rule.nodes.clone()
    exact = rule.expect(lambda x: x.exp()[:, 0])
    for _ in range(2):
        assert torch.equal(rule.expect(lambda x: x.exp_()[:, 0]), exact)
    assert torch.equal(rule.nodes, before)


def test_values_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="values of `f` must have shape"):
        signed_rule(2).expect(normal(5))


def test_effective_size_and_negative_share():
    rule = Rule(normal(4, 1), torch.tensor([0.5, 0.5, 0.5, -0.5]).double())
    assert rule.total.item() == 1.0
    assert rule.ess.item() == 1.0
    assert rule.negative_share.item() == 0.25


def test_a_rule_iterates_over_nodes_and_weights():
    rule = signed_rule()
    pairs = list(rule)
    assert len(rule) == len(pairs) == 5
    assert torch.allclose(sum(w * z for z, w in pairs), rule.mean())
    with pytest.raises(ValueError, match=r"Take `rule.query\(0\)`"):
        list(signed_rule(2))


def test_one_query_is_taken_out_with_its_emission():
    rule = Rule(normal(2, 5, 3), normal(2, 5), emission=torch.tensor([0, 2]))
    one = rule.query(1)
    assert torch.equal(one.nodes, rule.nodes[1])
    assert one.emission.item() == 2


def test_arrays_come_out_detached():
    rule = Rule(normal(3, 2).requires_grad_(), normal(3))
    nodes, weights = rule.to_numpy()
    assert isinstance(nodes, np.ndarray)
    assert nodes.shape == (3, 2)
    assert weights.shape == (3,)


def test_a_rule_scores_itself_once_it_knows_its_reference():
    embedding = Samples(normal(30, 2)).embed(SquaredExponential(1.0))
    z = normal(4, 2, rng_seed=1)
    rule = Rule(z, optimal_weights(z, embedding), embedding)
    assert torch.equal(rule.mmd2, mmd2(z, rule.weights, embedding))
    with pytest.raises(ValueError, match="does not carry its reference"):
        _ = Rule(z, rule.weights).mmd2


@some
@given(st.integers(2, 5), rng_seeds)
def test_a_pool_is_the_average_of_its_rules(count, rng_seed):
    rules = [signed_rule(2, rng_seed=rng_seed + 10 * k) for k in range(count)]
    pooled = pool(rules)
    assert pooled.nodes.shape == (2, 5 * count, 3)
    average = torch.stack([rule.expect(lambda x: x.sin()) for rule in rules]).mean(0)
    assert torch.allclose(pooled.expect(lambda x: x.sin()), average, rtol=1e-9, atol=1e-11)
    assert torch.allclose(pooled.total, torch.stack([rule.total for rule in rules]).mean(0), atol=1e-12)


@few
@given(st.integers(2, 5), rng_seeds)
def test_pooled_expectations_state_the_standard_error_of_their_parts(count, rng_seed):
    rules = [signed_rule(2, rng_seed=rng_seed + 10 * k) for k in range(count)]
    for f in (lambda x: x.sin().sum(-1), lambda x: x.cos()):
        parts = np.stack([rule.expect(f).numpy() for rule in rules])
        estimate = pool(rules).pooled_expect(f)
        assert isinstance(estimate, Estimate)
        assert np.allclose(estimate.value, parts.mean(0), rtol=1e-9, atol=1e-11)
        assert np.allclose(estimate.standard_error, parts.std(0, ddof=1) / count**0.5, rtol=1e-9, atol=1e-11)


@few
@given(rng_seeds)
def test_a_pool_is_no_worse_than_the_average_of_its_rules(rng_seed):
    embedding = Gaussian(torch.zeros(2).double(), torch.eye(2).double()).embed(SquaredExponential(0.7))
    rules = []
    for k in range(4):
        z = normal(5, 2, rng_seed=rng_seed + k)
        rules.append(Rule(z, optimal_weights(z, embedding), embedding))
    pooled = pool(rules)
    assert pooled.embedding is embedding
    assert pooled.mmd2 <= torch.stack([rule.mmd2 for rule in rules]).mean() + 1e-12


def test_the_leading_axis_pools_like_a_list():
    stacked = signed_rule(4, 2)
    rules = [stacked.query(k) for k in range(4)]
    first, second = stacked.pool(), pool(rules)
    assert torch.equal(first.nodes, second.nodes)
    assert torch.allclose(first.weights, second.weights)
    assert first.batches == second.batches == 4


def test_pools_of_pools_count_every_emission():
    halves = [pool([signed_rule(rng_seed=i), signed_rule(rng_seed=i + 5)]) for i in (1, 20)]
    whole = pool(halves)
    parts = [signed_rule(rng_seed=i).mean() for i in (1, 6, 20, 25)]
    assert whole.batches == 4
    assert torch.allclose(whole.pooled_expect(lambda x: x).value, torch.stack(parts).mean(0))
    assert torch.allclose(whole.pooled_expect(lambda x: x).standard_error, torch.stack(parts).std(0) / 2.0)


def test_an_embedding_for_each_pooled_query_is_not_carried_over():
    embedding = Samples(normal(4, 30, 2)).embed(SquaredExponential(1.0))
    z = normal(4, 5, 2)
    assert Rule(z, optimal_weights(z, embedding), embedding).pool().embedding is None


def test_pooling_needs_rules_of_one_shape():
    with pytest.raises(ValueError, match="at least one rule"):
        pool([])
    with pytest.raises(ValueError, match="nodes of one shape"):
        pool([signed_rule(), signed_rule(m=4)])
    with pytest.raises(ValueError, match="at least two pooled emissions"):
        signed_rule().pooled_expect(lambda x: x)


@some
@given(st.integers(1, 9), rng_seeds, st.floats(0.0, 1.0))
def test_quantiles_of_equal_weights_are_those_of_the_sample(m, rng_seed, level):
    x = normal(m, 2, rng_seed=rng_seed)
    rule = Rule(x, torch.full((m,), 1.0 / m).double())
    found = rule.quantile(level).numpy()
    expected = np.quantile(x.numpy(), level, axis=0, method="inverted_cdf")
    below = np.quantile(x.numpy(), max(level - 1e-9, 0.0), axis=0, method="inverted_cdf")
    assert bool(((found == expected) | (found == below)).all())


def test_quantiles_follow_the_weights():
    rule = Rule(torch.tensor([[3.0], [1.0], [2.0]]), torch.tensor([0.2, 0.5, 0.3]))
    levels = [0.0, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0]
    assert rule.quantile(levels)[:, 0].tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert rule.quantile(0.9, lambda x: -x[:, 0]).item() == -1.0


def test_quantiles_skip_nodes_of_no_weight():
    rule = Rule(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0.0, 1.0, 0.0]))
    assert rule.quantile([1e-6, 0.5, 1.0])[:, 0].tolist() == [1.0, 1.0, 1.0]


def test_quantiles_keep_their_queries_apart():
    nodes, weights = normal(3, 7, 2), normal(3, 7, rng_seed=1).abs()
    together = Rule(nodes, weights).quantile([0.1, 0.5])
    assert together.shape == (3, 2, 2)
    for i in range(3):
        assert torch.equal(together[i], Rule(nodes[i], weights[i]).quantile([0.1, 0.5]))


def test_resampling_follows_the_weights():
    rule = Rule(torch.tensor([[0.0], [1.0]]), torch.tensor([0.25, 0.75]))
    draws = rule.resample(10_000, generator=torch.Generator().manual_seed(0))
    assert draws.shape == (10_000, 1)
    assert abs(draws.mean().item() - 0.75) < 5 * (0.1875 / 10_000) ** 0.5


def test_resampling_keeps_its_queries_apart():
    nodes = torch.arange(3.0)[:, None, None] * 100 + torch.arange(4.0)[:, None]
    draws = Rule(nodes, torch.ones(3, 4)).resample(6, generator=torch.Generator().manual_seed(0))
    assert torch.equal((draws // 100)[..., 0], torch.arange(3.0)[:, None].expand(3, 6))


@pytest.mark.parametrize("use", [lambda r: r.quantile(0.5), lambda r: r.resample(3)])
def test_signed_weights_refuse_and_name_the_remedy(use):
    rule = Rule(normal(3, 1), torch.tensor([1.0, -0.5, 0.5]).double())
    with pytest.raises(ValueError, match=r"33% are negative.*simplex_weights\(rule.nodes, rule.embedding\)"):
        use(rule)


def test_the_remedy_works():
    draws = normal(500, 1)
    embedding = Samples(draws).embed(SquaredExponential(0.5))
    z = draws[:20]
    rule = Rule(z, simplex_weights(z, embedding), embedding)
    assert abs(rule.quantile(0.5).item() - draws.median().item()) < 0.4
    assert rule.resample(3, generator=torch.Generator().manual_seed(0)).shape == (3, 1)


@pytest.mark.parametrize("levels", [-0.1, 1.1, [0.5, float("nan")]])
def test_levels_are_probabilities(levels):
    with pytest.raises(ValueError, match="between 0 and 1"):
        positive_rule().quantile(levels)


def test_rules_refuse_what_is_not_finite():
    with pytest.raises(ValueError, match="`nodes` must be finite: row 1"):
        Rule(torch.tensor([[0.0], [torch.nan]]), torch.ones(2))
    with pytest.raises(ValueError, match="`weights` must be finite: 1 of 2"):
        Rule(torch.zeros(2, 1), torch.tensor([1.0, torch.inf]))
