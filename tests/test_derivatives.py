import pytest
import strategies
import torch
from hypothesis import given
from hypothesis import strategies as st

from amsip import Matern, Octaves, Polynomial, Samples, SquaredExponential, Whitened, Whitening, derivatives
from amsip.kernels import Sum
from amsip.maps.curvature import _by_differences, mean_hessian


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(rng_seed))


def chart(dim: int) -> Whitening:
    a = points(dim, dim, rng_seed=3)
    return Whitening.of_moments(points(dim, rng_seed=4), a @ a.mT + torch.eye(dim, dtype=torch.float64))


def cases():
    radial = [SquaredExponential(0.7), Octaves(0.5, 3), Matern(0.9, 2.5), Matern(0.9, 1.5)]
    mixed = Octaves(0.5, 3) + 2.0 * Polynomial(2, 1.5)
    return [*radial, Polynomial(1, 2.0), Polynomial(2, 1.5), mixed, Whitened(mixed, chart(3))]


def by_autograd(kernel, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """d/dx_a d/dy_b k(x, y), one pair of points."""

    def value(a, b):
        return kernel(a[None], b[None])[0, 0]

    return torch.func.jacrev(torch.func.grad(value), argnums=1)(x, y)


@pytest.mark.parametrize("kernel", cases(), ids=lambda k: type(k).__name__)
def test_mixed_derivatives_pair_by_pair(kernel):
    x = points(5, 3)
    gram = derivatives.derivative_gram(kernel, x)
    for i in range(5):
        for j in range(5):
            if i != j:
                torch.testing.assert_close(gram[i, :, j, :], by_autograd(kernel, x[i], x[j]), rtol=1e-9, atol=1e-10)


@given(strategies.kernels(), st.integers(0, 999))
def test_products_transposes_and_diagonals_are_those_of_the_dense_arrays(kernel, rng_seed):
    if isinstance(kernel, Sum) and any(isinstance(k, Matern) and k.smoothness == 0.5 for _, k in kernel.terms):
        return
    x, v = points(2, 5, 3, rng_seed=rng_seed), points(2, 5, 3, rng_seed=rng_seed + 1)
    w = points(2, 5, rng_seed=rng_seed + 2)
    dense, grads = derivatives.derivative_gram(kernel, x), derivatives.gram_grad(kernel, x)
    product = torch.einsum("qiajb,qjb->qia", dense, v)
    torch.testing.assert_close(derivatives.derivative_product(kernel, x, v), product, rtol=1e-8, atol=1e-8)
    diagonal = torch.stack([dense[:, i, :, i, :] for i in range(5)], 1)
    torch.testing.assert_close(derivatives.derivative_diagonal(kernel, x), diagonal, rtol=1e-8, atol=1e-8)
    along = torch.einsum("qjia,qja->qi", grads, v)
    torch.testing.assert_close(derivatives.directional_sum(kernel, x, v), along, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        kernel.weighted_grad(x, x, w), torch.einsum("qija,qj->qia", grads, w), rtol=1e-7, atol=1e-7
    )


@given(strategies.kernels(), st.integers(0, 999))
def test_the_derivative_gram_is_positive_semi_definite(kernel, rng_seed):
    if isinstance(kernel, Sum) and any(isinstance(k, Matern) and k.smoothness == 0.5 for _, k in kernel.terms):
        return
    gram = derivatives.derivative_gram(kernel, points(5, 2, rng_seed=rng_seed)).reshape(10, 10)
    torch.testing.assert_close(gram, gram.mT, rtol=1e-9, atol=1e-9)
    spectrum = torch.linalg.eigvalsh(gram)
    assert spectrum[0] > -1e-9 * spectrum[-1]


@pytest.mark.parametrize("kernel", cases(), ids=lambda k: type(k).__name__)
def test_hessian_of_a_weighted_sum(kernel):
    x, y, w = points(4, 3), points(7, 3, rng_seed=1), points(7, rng_seed=2)
    expected = [torch.func.jacrev(torch.func.grad(lambda a: kernel.weighted_sum(a[None], y, w)[0]))(a) for a in x]
    torch.testing.assert_close(
        derivatives.weighted_hessian(kernel, x, y, w), torch.stack(expected), rtol=1e-8, atol=1e-9
    )


@given(strategies.samples(low=2, dim=2) | strategies.mixtures(dim=2) | strategies.gaussians(dim=2), st.booleans())
def test_hessian_of_every_embedding_against_differences_of_its_gradient(reference, whitened):
    kernel = Octaves(0.8, 2) + Polynomial(2, 2.0)
    embedding = reference.embed(Whitened(kernel, chart(2)) if whitened else kernel)
    nodes = points(5, 2) + reference.moments()[0]
    closed, approximate = mean_hessian(embedding, nodes), _by_differences(embedding, nodes)
    torch.testing.assert_close(closed, approximate, rtol=1e-5, atol=1e-5)


def test_blocks_of_atoms_add_up(monkeypatch):
    atoms, nodes = points(2, 37, 3), points(2, 5, 3, rng_seed=1)
    embedding = Samples(atoms).embed(SquaredExponential(0.9))
    whole = mean_hessian(embedding, nodes)
    monkeypatch.setattr("amsip._linalg.BLOCK_ENTRIES", 60)
    monkeypatch.setattr("amsip._linalg.RECORDED_ENTRIES", 60)
    torch.testing.assert_close(mean_hessian(embedding, nodes), whole, rtol=1e-12, atol=1e-13)
