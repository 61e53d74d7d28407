"""What every kernel, reference, embedding and map promises, on sizes that are all different primes."""

import inspect
import pkgutil
from importlib import import_module

import contracts
import numpy as np
import pytest
import torch
from torch import nn

import amsip
from amsip.kernels import Kernel, SquaredExponential
from amsip.references.base import Embedding, Reference

Q, M, D, N = 2, 5, 3, 7
DTYPES = [torch.float32, torch.float64]


def normal(*shape, rng_seed=0):
    return torch.as_tensor(np.random.default_rng(rng_seed).normal(size=shape))


def data(dtype=torch.float64):
    return normal(Q, N, D).to(dtype)


def nodes(dtype=torch.float64, dim=D):
    return normal(Q, M, dim, rng_seed=1).to(dtype)


def state(rng_seed=0):
    return torch.Generator().manual_seed(rng_seed)


def close(a, b, dtype=torch.float64):
    tolerance = 1e-8 if dtype == torch.float64 else 2e-3
    return torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def package_classes():
    """Every class defined in the package."""
    for module in pkgutil.walk_packages(amsip.__path__, "amsip."):
        if module.name.endswith("__main__"):
            continue
        for _, found in inspect.getmembers(import_module(module.name), inspect.isclass):
            if found.__module__ == module.name:
                yield found


def concrete(base):
    classes = {c for c in package_classes() if issubclass(c, base) and not inspect.isabstract(c)}
    return {c.__name__ for c in classes if c is not base}


def map_classes():
    """Classes that are called with nodes first and an embedding (or an observation) second."""
    for found in package_classes():
        call = found.__dict__.get("forward" if issubclass(found, nn.Module) else "__call__")
        if call is None or found.__name__ == "NodeMap":
            continue
        signature = inspect.signature(call)
        annotation = str(signature.return_annotation)
        returns_nodes = "Float[Tensor, '*q m d']" in annotation and "tuple" not in annotation
        if list(signature.parameters)[1:3] in (["nodes", "embedding"], ["nodes", "observation"]) and returns_nodes:
            yield found.__name__


@pytest.mark.parametrize(
    ("found", "cases"),
    [
        (concrete(Kernel), contracts.KERNELS),
        (concrete(Reference), contracts.REFERENCES),
        (concrete(Embedding), contracts.EMBEDDINGS),
        (set(map_classes()), contracts.MAPS),
    ],
    ids=["kernels", "references", "embeddings", "maps"],
)
def test_every_concrete_class_has_an_instance_here(found, cases):
    assert found
    missing = found - {name for case in cases for name in case.covers}
    assert not missing, f"{sorted(missing)} make no promises: add a case to tests/contracts.py"


@each(contracts.KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_have_the_shapes_and_precision_of_their_points(case, dtype):
    kernel, x, y, w = case.build(data(dtype)), nodes(dtype), data(dtype), normal(Q, N, rng_seed=2).to(dtype)
    value, grad = kernel.weighted_sum_and_grad(x, y, w)
    shapes = {
        "call": (kernel(x, y), (Q, M, N)),
        "gram": (kernel.gram(x), (Q, M, M)),
        "diagonal": (kernel.diagonal(x), (Q, M)),
        "sum": (kernel.weighted_sum(x, y, w), (Q, M)),
        "value": (value, (Q, M)),
        "grad": (grad, (Q, M, D)),
    }
    for name, (found, shape) in shapes.items():
        assert found.shape == shape, name
        assert found.dtype == dtype, name


@each(contracts.KERNELS)
def test_kernels_agree_with_themselves(case):
    kernel, x, y, w = case.build(data()), nodes(), data(), normal(Q, N, rng_seed=2)
    assert close(kernel.gram(x), kernel(x, x))
    assert close(kernel.diagonal(x), kernel.gram(x).diagonal(dim1=-2, dim2=-1))
    assert close(kernel(x, y), kernel(y, x).mT)
    assert close(kernel.weighted_sum(x, y, w), (kernel(x, y) * w[:, None]).sum(-1))
    assert close(kernel.weighted_sum_and_grad(x, y, w)[0], kernel.weighted_sum(x, y, w))
    assert close(kernel.weighted_grad(x, y, w), kernel.weighted_sum_and_grad(x, y, w)[1])


@each(contracts.KERNELS)
def test_kernels_treat_queries_apart(case):
    x, y, w = nodes(), data(), normal(Q, N, rng_seed=2)
    together = case.build(data()).weighted_sum_and_grad(x, y, w)
    gram = case.build(data()).gram(x)
    for q in range(Q):
        alone = case.build(data()[q])
        assert all(close(a[q], b) for a, b in zip(together, alone.weighted_sum_and_grad(x[q], y[q], w[q]), strict=True))
        assert close(gram[q], alone.gram(x[q]))


@each(contracts.KERNELS)
def test_kernels_leave_their_arguments_alone(case):
    arguments = (nodes(), data(), normal(Q, N, rng_seed=2))
    copies = [a.clone() for a in arguments]
    kernel = case.build(data())
    kernel.weighted_sum_and_grad(*arguments)
    kernel(*arguments[:2])
    kernel.gram(arguments[0])
    assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=True))


@each(contracts.KERNELS)
def test_kernels_give_the_gradient_that_autograd_gives(case):
    kernel, y, w = case.build(data()), data(), normal(Q, N, rng_seed=2)
    x = nodes().requires_grad_()
    kernel.weighted_sum(x, y, w).sum().backward()
    assert close(x.grad, kernel.weighted_grad(x.detach(), y, w))


@each(contracts.REFERENCES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_references_have_the_shapes_and_precision_of_their_data(case, dtype):
    reference = case.build(data(dtype))
    d = reference.dim
    mean, cov = reference.moments()
    assert reference.batch_shape == (Q,)
    assert reference.sample(M, generator=state()).shape == (Q, M, d)
    assert reference.sample(M, generator=state()).dtype == dtype
    assert mean.shape == (Q, d)
    assert cov.shape == (Q, d, d)
    assert mean.dtype == cov.dtype == dtype
    if reference.score is not None:
        assert reference.score(nodes(dtype, d)).shape == (Q, M, d)


@each(contracts.REFERENCES)
def test_references_draw_by_their_generator_alone(case):
    reference = case.build(data())
    before = torch.random.get_rng_state()
    first, again, other = (reference.sample(50, generator=state(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


@each(contracts.REFERENCES)
def test_references_treat_queries_apart(case):
    reference = case.build(data())
    mean, cov = reference.moments()
    z = nodes(dim=reference.dim)
    embedded = reference.embed(SquaredExponential(0.9)).mean(z)
    for q in range(Q):
        alone = case.build(data()[q])
        assert close(mean[q], alone.moments()[0])
        assert close(cov[q], alone.moments()[1])
        assert close(embedded[q], alone.embed(SquaredExponential(0.9)).mean(z[q]))
        if reference.score is not None:
            assert close(reference.score(z)[q], alone.score(z[q]))


@each(contracts.REFERENCES)
def test_references_move_into_charts_with_their_moments(case):
    reference = case.build(data())
    chart = contracts.chart(nodes(dim=reference.dim))
    moved = reference.whiten(chart)
    for found, expected in zip(moved.moments(), chart.push_moments(*reference.moments()), strict=True):
        assert close(found, expected)


@each(contracts.REFERENCES)
def test_references_have_draws_of_their_moments(case):
    reference = case.build(data())
    draws = reference.sample(4000, generator=state(4))
    mean, cov = reference.moments()
    spread = cov.diagonal(dim1=-2, dim2=-1).sqrt()
    # a sampler knows its moments from a bank of 64 draws only
    count = 4000 if case.name != "sampler" else 60
    assert bool(((draws.mean(-2) - mean).abs() < 5 * spread / count**0.5 + 1e-12).all())


@each(contracts.EMBEDDINGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_embeddings_have_the_shapes_and_precision_of_the_nodes(case, dtype):
    embedding, z = case.build(data(dtype)), nodes(dtype)
    value, grad = embedding.mean_and_grad(z)
    assert embedding.dim == D
    assert embedding.mean(z).shape == value.shape == (Q, M)
    assert grad.shape == (Q, M, D)
    assert embedding.mean(z).dtype == value.dtype == grad.dtype == dtype
    assert embedding.energy.shape == (Q,)
    assert embedding.energy.dtype == torch.float64
    assert [moment.shape for moment in embedding.moments] == [(Q, D), (Q, D, D)]


@each(contracts.EMBEDDINGS)
def test_embeddings_in_single_precision_are_read_in_double_where_nodes_are(case):
    single, double = case.build(data(torch.float32)), case.build(data(torch.float32).double())
    z = nodes()
    assert single.mean(z).dtype == torch.float64
    assert torch.allclose(single.mean(z), double.mean(z), rtol=1e-4, atol=1e-5)
    assert torch.allclose(single.energy, double.energy, rtol=1e-4)


@each(contracts.EMBEDDINGS)
def test_embeddings_treat_queries_apart(case):
    together, z = case.build(data()), nodes()
    value, grad = together.mean_and_grad(z)
    for q in range(Q):
        alone = case.build(data()[q])
        single = alone.mean_and_grad(z[q])
        assert close(value[q], single[0])
        assert close(grad[q], single[1])
        assert close(together.energy[q], alone.energy)


@each(contracts.EMBEDDINGS)
def test_embeddings_give_the_gradient_that_autograd_gives(case):
    embedding, z = case.build(data()), nodes().requires_grad_()
    value, grad = embedding.mean_and_grad(z.detach())
    assert close(embedding.mean(z.detach()), value)
    embedding.mean(z).sum().backward()
    assert close(z.grad, grad)


@each(contracts.EMBEDDINGS)
def test_embeddings_leave_nodes_and_data_alone(case):
    given, z = data(), nodes()
    embedding = case.build(given)
    embedding.mean_and_grad(z)
    _ = embedding.energy
    assert torch.equal(given, data())
    assert torch.equal(z, nodes())


@each(contracts.EMBEDDINGS)
def test_embeddings_are_no_larger_than_the_heights_allow(case):
    # Cauchy-Schwarz in the space of the kernel: mu(z)^2 <= c k(z, z)
    embedding, z = case.build(data()), nodes()
    bound = embedding.energy[:, None] * embedding.kernel.diagonal(z)
    assert bool((embedding.mean(z).square() <= bound * (1.0 + 1e-9)).all())


def embedded(values):
    return contracts.weighted(values).embed(SquaredExponential(1.0))


@each(contracts.MAPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, M, 11])
def test_maps_take_any_number_of_nodes_and_give_as_many_back(case, dtype, m):
    z = normal(Q, m, D, rng_seed=3).to(dtype)
    moved = case.build(data(dtype))(z, embedded(data(dtype)))
    assert moved.shape == z.shape
    assert moved.dtype == dtype
    assert bool(torch.isfinite(moved).all())


@each(contracts.MAPS)
def test_maps_move_something_and_leave_their_arguments_alone(case):
    z = nodes()
    moved = case.build(data())(z, embedded(data()))
    assert torch.equal(z, nodes())
    assert not torch.equal(moved, z)


@each(contracts.MAPS)
def test_maps_commute_with_the_order_of_the_nodes(case):
    node_map, z, order = case.build(data()), nodes(), torch.tensor([3, 0, 4, 1, 2])
    moved, shuffled = (node_map(points, embedded(data())) for points in (z, z[:, order]))
    assert torch.allclose(moved[:, order], shuffled, rtol=1e-6, atol=1e-7)


@each(contracts.MAPS)
def test_maps_treat_queries_apart(case):
    z = nodes()
    together = case.build(data())(z, embedded(data()))
    for q in range(Q):
        alone = case.build(data()[q])(z[q], embedded(data()[q]))
        assert torch.allclose(together[q], alone, rtol=1e-6, atol=1e-7)


@each(contracts.MAPS)
def test_maps_repeat_themselves_and_leave_the_global_generator_alone(case):
    node_map, before = case.build(data()), torch.random.get_rng_state()
    first, again = (node_map(nodes(), embedded(data())) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(before, torch.random.get_rng_state())


@each([case for case in contracts.MAPS if isinstance(case.build(data()), nn.Module)])
def test_networks_send_a_gradient_to_every_parameter(case):
    net = case.build(data())
    net(nodes(), embedded(data())).square().sum().backward()
    idle = [name for name, parameter in net.named_parameters() if parameter.grad is None]
    assert not idle
