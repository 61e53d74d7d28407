import pytest
import torch

from amsip.kernels import SquaredExponential
from amsip.maps.levenberg import NormalEquations, read
from amsip.maps.optimum import AdamDescent
from amsip.problems import toys
from amsip.weights import optimal_weights


def setting(sets: int = 3, m: int = 5):
    toy = toys.gaussian_toy(4)
    return toy.seed_sets(m, sets), toy.reference().embed(SquaredExponential(0.4))


def loss_of(nodes, embedding):
    return read(nodes, embedding).loss


def test_the_gradient_is_that_of_the_discrepancy_with_weights_re_solved():
    nodes, embedding = setting()
    nodes = nodes.clone().requires_grad_()
    weights = optimal_weights(nodes, embedding)
    gram, mean = embedding.kernel.gram(nodes), embedding.mean(nodes)
    objective = (weights * ((gram @ weights[..., None])[..., 0] - 2.0 * mean)).sum()
    expected = torch.autograd.grad(objective, nodes)[0]
    state = read(nodes.detach(), embedding)
    assert torch.allclose(-2.0 * NormalEquations.at(state, embedding).gradient, expected, atol=1e-7)


def test_steps_are_those_of_adam():
    nodes, embedding = setting(sets=1)
    moved = AdamDescent(steps=3, rate=0.01)(nodes, embedding)
    z = nodes.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=0.01)
    for _ in range(3):
        optimiser.zero_grad()
        weights = optimal_weights(z, embedding)
        gram, mean = embedding.kernel.gram(z), embedding.mean(z)
        (weights * ((gram @ weights[..., None])[..., 0] - 2.0 * mean)).sum().backward()
        optimiser.step()
    assert torch.allclose(moved, z.detach(), atol=1e-6)


@pytest.mark.parametrize("rate", [0.05, 5.0])
def test_no_query_ends_above_its_start(rate):
    nodes, embedding = setting(sets=7)
    moved = AdamDescent(steps=20, rate=rate)(nodes, embedding)
    assert (loss_of(moved, embedding) <= loss_of(nodes, embedding)).all()


def test_queries_do_not_see_each_other_and_inputs_are_untouched():
    nodes, embedding = setting()
    kept = nodes.clone()
    batch = AdamDescent(steps=10)(nodes, embedding)
    singles = torch.stack([AdamDescent(steps=10)(z, embedding) for z in nodes])
    assert torch.allclose(batch, singles, atol=1e-9)
    assert torch.equal(nodes, kept)


def test_no_steps_give_the_nodes_back():
    nodes, embedding = setting()
    assert torch.equal(AdamDescent(steps=0)(nodes, embedding), nodes)
