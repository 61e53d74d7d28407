"""The learned mean shift carries every symmetry of its inputs, on random and on shipped weights."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amsip import Octaves, Polynomial, Samples, SquaredExponential
from amsip.defaults import universal_map, universal_network, whitened_kernel
from amsip.maps.unrolled import UnrolledMap

DTYPE = torch.float64


def cloud(q: int, n: int, d: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(q, n, d, generator=generator, dtype=DTYPE)
    return x + 0.3 * x.square()


def random_net(number: int = 0) -> UnrolledMap:
    net = UnrolledMap(layers=2, width=16, heads=2).double()
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=DTYPE))
    return net


def rotation(d: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=DTYPE))[0]


def rounding(d: int) -> float:
    """What rounding may grow to through the solves: nodes on a line crowd until their Gram is nearly singular."""
    return 1e-3 if d == 1 else 1e-5


MAPS = [pytest.param(random_net(), id="random"), pytest.param(universal_network, id="shipped")]


def test_untrained_returns_its_seeds_bit_for_bit():
    atoms = cloud(2, 50, 3, 0)
    seeds = atoms[:, :7]
    assert torch.equal(UnrolledMap().double()(seeds, Samples(atoms).embed(whitened_kernel(3))), seeds)


def test_shared_weights_are_one_layer_used_again_and_again():
    shared, apart = UnrolledMap(3, 16, 2, shared=True).double(), UnrolledMap(3, 16, 2).double()
    one = random_net().layers[0].state_dict()
    for layer in (*shared.layers, *apart.layers):
        layer.load_state_dict(one)
    atoms = cloud(2, 50, 3, 0)
    seeds, embedding = atoms[:, :7], Samples(atoms).embed(whitened_kernel(3))
    assert shared.path(seeds, embedding).shape[0] == 3
    assert torch.equal(shared(seeds, embedding), apart(seeds, embedding))
    assert 3 * sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in apart.parameters())


@pytest.mark.parametrize("node_map", MAPS)
@settings(max_examples=25)
@given(number=st.integers(0, 10_000), m=st.integers(1, 13), d=st.integers(1, 7))
def test_permutations_of_nodes_carry_through(node_map, number, m, d):
    atoms = cloud(1, 60, d, number)
    embedding = Samples(atoms).embed(whitened_kernel(d))
    order = torch.randperm(m, generator=torch.Generator().manual_seed(number))
    moved = node_map(atoms[:, :m], embedding)
    assert (node_map(atoms[:, :m][:, order], embedding) - moved[:, order]).abs().max() < rounding(d)


@pytest.mark.parametrize("node_map", MAPS)
@settings(max_examples=25)
@given(number=st.integers(0, 10_000), d=st.integers(2, 7))
def test_rotations_carry_through(node_map, number, d):
    atoms, turn = cloud(1, 60, d, number), rotation(d, number)
    kernel = Octaves(0.5, 3) + 0.5 * Polynomial(2, float(d))
    moved = node_map(atoms[:, :11], Samples(atoms).embed(kernel))
    turned = node_map(atoms[:, :11] @ turn.T, Samples(atoms @ turn.T).embed(kernel))
    assert (turned - moved @ turn.T).abs().max() < rounding(d)


@pytest.mark.parametrize("node_map", MAPS)
@settings(max_examples=25)
@given(number=st.integers(0, 10_000), d=st.integers(1, 5), scale=st.sampled_from([1e-6, 0.1, 7.0, 1e6]))
def test_translation_and_scale_carry_through(node_map, number, d, scale):
    atoms = cloud(1, 60, d, number)
    # eleven nodes on a line are one too many for a kernel this smooth: the weights would be rounding
    m = 11 if d > 1 else 5
    moved = node_map(atoms[:, :m], Samples(atoms).embed(SquaredExponential(0.7)))
    shift = scale * torch.arange(1.0, d + 1.0, dtype=DTYPE)
    elsewhere = scale * atoms + shift
    far = node_map(elsewhere[:, :m], Samples(elsewhere).embed(SquaredExponential(0.7 * scale)))
    assert ((far - shift) / scale - moved).abs().max() < rounding(d)


@pytest.mark.parametrize("node_map", MAPS)
@settings(max_examples=25)
@given(number=st.integers(0, 10_000), m=st.integers(2, 13))
def test_queries_do_not_see_each_other(node_map, number, m):
    atoms = cloud(3, 40, 2, number)
    embedding = Samples(atoms).embed(whitened_kernel(2))
    together = node_map(atoms[:, :m], embedding)
    alone = node_map(atoms[1, :m], Samples(atoms[1]).embed(whitened_kernel(2)))
    assert (together[1] - alone).abs().max() < rounding(2)


@pytest.mark.parametrize("m", [1, 2, 3, 96, 200])
@pytest.mark.parametrize("d", [1, 2, 17, 40])
def test_any_budget_in_any_dimension(m, d):
    atoms = cloud(1, 220, d, m + d)
    moved = universal_network(atoms[:, :m], Samples(atoms).embed(whitened_kernel(d)))
    assert moved.shape == (1, m, d)
    assert torch.isfinite(moved).all()


def test_the_whole_default_carries_rotations():
    atoms, turn = cloud(1, 300, 3, 1), rotation(3, 1)
    kernel = whitened_kernel(3)
    moved = universal_map(atoms[:, :11], Samples(atoms).embed(kernel))
    turned = universal_map(atoms[:, :11] @ turn.T, Samples(atoms @ turn.T).embed(kernel))
    assert (turned - moved @ turn.T).abs().max() < 1e-4


def test_every_parameter_has_a_gradient():
    net, atoms = random_net(), cloud(2, 50, 3, 2)
    net(atoms[:, :7], Samples(atoms).embed(whitened_kernel(3))).square().sum().backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert silent == []


def test_vectors_have_unit_scale_in_their_squash():
    # a node far away is pulled by a bounded step: log(1 + |v|^2) may grow, the displacement may not
    atoms = cloud(1, 60, 2, 3)
    seeds = torch.cat([atoms[:, :6], atoms[:, :1] + 1e4], 1)
    moved = random_net()(seeds, Samples(atoms).embed(SquaredExponential(1.0)))
    assert torch.isfinite(moved).all()
    assert (moved[:, :6] - seeds[:, :6]).abs().max() < 1e5
    assert math.isfinite(moved[0, 6].norm().item())


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_default_dtype_of_the_session_changes_nothing(default):
    # a sign written as a number took the session's precision, and the network refused it
    nodes = cloud(1, 40, 2, 0)[0].float()
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        moved = universal_map(nodes[:5], Samples(nodes).embed(whitened_kernel(2)))
    finally:
        torch.set_default_dtype(before)
    assert moved.dtype == torch.float32
    assert torch.allclose(moved, universal_map(nodes[:5], Samples(nodes).embed(whitened_kernel(2))), atol=1e-5)


def test_a_network_in_single_precision_moves_nodes_in_double():
    # weights are stored in single precision, draws in files are read in double
    nodes = cloud(1, 40, 2, 0)[0]
    net, embedding = random_net(), Samples(nodes).embed(whitened_kernel(2))
    exact = net(nodes[:5], embedding)
    moved = net.float()(nodes[:5], embedding)
    assert moved.dtype == DTYPE
    assert 0.0 < (moved - exact).abs().max() < 1e-3 * (exact - nodes[:5]).abs().max()
