"""The paper's map and its observation-conditioned twin."""

import oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amsip import Samples, SquaredExponential
from amsip.maps.attention import AttentionMap
from amsip.maps.catalogue import build_map, describe_map
from amsip.maps.conditioned import ConditionedMap
from amsip.quadrature import quadrature


def generator(rng_seed=0):
    return torch.Generator().manual_seed(rng_seed)


def stirred(net, rng_seed=1):
    """Every parameter random, so that nothing hides behind the zero initialisation."""
    source = generator(rng_seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=source, dtype=p.dtype))
    return net


def seeds(*shape, rng_seed=2, dtype=torch.float64):
    return torch.randn(*shape, generator=generator(rng_seed), dtype=dtype)


@pytest.mark.parametrize(
    ("dim", "width", "count"),
    [(2, 64, 114_690), (7, 64, 115_335), (16, 64, 116_496), (64, 64, 122_688), (32, 96, 250_976)],
)
def test_parameter_counts_are_the_papers(dim, width, count):
    assert sum(p.numel() for p in AttentionMap(dim, width).parameters()) == count


def test_twin_has_about_a_million_parameters():
    assert sum(p.numel() for p in ConditionedMap(32, (1, 64, 64)).parameters()) == 1_044_032


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_untrained_maps_return_their_seeds_bit_for_bit(dtype):
    z = seeds(3, 7, 5, dtype=dtype)
    assert torch.equal(AttentionMap(5, generator=generator())(z), z)
    assert torch.equal(ConditionedMap(5, (1, 16, 16)).given(seeds(3, 1, 16, 16))(z), z)


def test_forward_is_the_network_written_out():
    # fails for a modulation on the wrong branch, a sample standard deviation, a missing 1/sqrt(size) or 0.5
    net = stirred(AttentionMap(3, width=10, blocks=2, heads=2, context=4))
    z = seeds(5, 3)
    state = {name: value.numpy() for name, value in net.state_dict().items()}
    expected = oracles.set_network(z.numpy(), state, heads=2, reach=0.5)
    torch.testing.assert_close(net(z).detach(), torch.from_numpy(expected), rtol=1e-10, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(m=st.integers(1, 40), dim=st.integers(1, 9), rng_seed=st.integers(0, 10_000))
def test_permuting_seeds_permutes_nodes(m, dim, rng_seed):
    net = stirred(AttentionMap(dim, width=8, heads=2), rng_seed)
    z, order = seeds(m, dim, rng_seed=rng_seed), torch.randperm(m, generator=generator(rng_seed))
    torch.testing.assert_close(net(z[order]), net(z)[order], rtol=0, atol=1e-12)


def test_queries_do_not_see_each_other():
    net = stirred(AttentionMap(3, width=8, heads=2))
    z = seeds(2, 4, 5, 3)
    single = torch.stack([torch.stack([net(q) for q in row]) for row in z])
    torch.testing.assert_close(net(z), single, rtol=0, atol=1e-12)


def test_the_map_reads_the_number_of_nodes():
    # the same points twice have the same attention and spread; only log M differs
    net = stirred(AttentionMap(3, width=8, heads=2))
    z = seeds(5, 3)
    assert not torch.allclose(net(torch.cat([z, z]))[:5], net(z))


def test_nodes_keep_the_precision_of_the_seeds():
    net = stirred(AttentionMap(3, width=8, heads=2)).float()
    z = seeds(7, 3)
    moved = net(z)
    assert moved.dtype == torch.float64
    torch.testing.assert_close(moved, net.double()(z), rtol=0, atol=1e-5)


def test_generator_decides_the_parameters_and_the_global_state_is_left_alone():
    before = torch.random.get_rng_state()
    first, same, other = (AttentionMap(2, generator=generator(s)) for s in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.embed.weight, same.embed.weight)
    assert not torch.equal(first.embed.weight, other.embed.weight)


def test_inputs_are_untouched_and_every_parameter_learns():
    net, z = stirred(AttentionMap(3, width=8, heads=2)), seeds(2, 5, 3)
    kept = z.clone()
    net(z).square().sum().backward()
    assert torch.equal(z, kept)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_coinciding_seeds_give_finite_nodes():
    # log of a zero spread
    assert torch.isfinite(stirred(AttentionMap(3, width=8, heads=2))(torch.ones(4, 3, dtype=torch.float64))).all()


@pytest.mark.parametrize("shape", [(1, 16, 24), (11,)])
def test_twin_reads_the_observation_and_keeps_the_symmetries(shape):
    net = stirred(ConditionedMap(3, shape, width=16, blocks=2, heads=2))
    z, y = seeds(2, 5, 3), seeds(2, *shape, rng_seed=5)
    moved = net.given(y)(z)
    order = torch.tensor([3, 1, 0, 4, 2])
    torch.testing.assert_close(net.given(y)(z[:, order]), moved[:, order], rtol=0, atol=1e-12)
    single = torch.stack([net.given(y[q])(z[q]) for q in range(2)])
    torch.testing.assert_close(moved, single, rtol=0, atol=1e-12)
    assert not torch.allclose(net.given(y.flip(0))(z), moved)


def test_one_observation_serves_a_batch_of_seed_sets():
    net = stirred(ConditionedMap(3, (11,), width=16, blocks=2, heads=2))
    z, y = seeds(4, 5, 3), seeds(11)
    torch.testing.assert_close(net.given(y)(z), net.given(y.expand(4, 11))(z), rtol=0, atol=1e-12)


def test_twin_is_blind_to_the_observation_before_training_but_not_to_its_gradient():
    net = ConditionedMap(3, (11,), width=16, blocks=2, heads=2, generator=generator())
    torch.nn.init.normal_(net.head.weight, generator=generator())
    z = seeds(5, 3)
    assert torch.equal(net.given(seeds(11))(z), net.given(seeds(11, rng_seed=9))(z))
    net.given(seeds(11))(z).square().sum().backward()
    assert net.blocks[0].out.weight.grad.abs().sum() > 0


def test_quadrature_takes_both_maps():
    draws = seeds(200, 3)
    twin = ConditionedMap(3, (11,), width=16, heads=2).given(seeds(11))
    for node_map in (AttentionMap(3, width=8, heads=2), twin):
        rule = quadrature(Samples(draws), 7, kernel=SquaredExponential(1.0), node_map=node_map, generator=generator())
        assert rule.nodes.shape == (7, 3)


@pytest.mark.parametrize(
    ("kind", "options"), [("attention", {"dim": 3, "width": 8}), ("conditioned", {"dim": 3, "observation": [11]})]
)
def test_settings_rebuild_the_map(kind, options):
    net = build_map(kind, options, generator=generator())
    name, found = describe_map(net)
    again = build_map(name, found, generator=generator())
    assert name == kind
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="`width` must be a positive multiple of `heads`: got width 10 for 4 heads"):
        AttentionMap(2, width=10)
    with pytest.raises(ValueError, match="`nodes` must have 2 coordinates"):
        AttentionMap(2)(seeds(4, 3))
    with pytest.raises(ValueError, match="`observation` must end with the axes"):
        ConditionedMap(2, (1, 16, 16)).given(seeds(16, 16))
    with pytest.raises(ValueError, match="did you mean `width`"):
        build_map("attention", {"dim": 2, "widht": 8})
    with pytest.raises(TypeError, match="must be a map of"):
        describe_map(torch.nn.Linear(2, 2))
