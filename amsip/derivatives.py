"""The second order of a kernel: Gram matrices between k(z_i, .) and its derivatives in the nodes."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _linalg
from amsip.kernels import Kernel, Polynomial, Radial, Sum, Whitened, sum_terms


def gram_grad(kernel: Kernel, x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m m d"]:
    r"""The gradient of each Gram entry in its first argument, $\nabla_1 k(x_i, x_j)$.

    Example:
        >>> from amsip import SquaredExponential
        >>> gram_grad(SquaredExponential(1.0), torch.zeros(3, 2)).shape
        torch.Size([3, 3, 2])
    """
    match kernel:
        case Sum():
            return sum_terms([c * gram_grad(k, x) for c, k in kernel.terms])
        case Whitened():
            return gram_grad(kernel.kernel, kernel.whitening.forward(x)) @ _root(kernel)[..., None, :, :]
        case Polynomial():
            return polynomial_slope(kernel, x)[..., None] * x[..., None, :, :]
        case Radial():
            gaps = x[..., :, None, :] - x[..., None, :, :]
            return -gaps * kernel.profile(gaps.square().sum(-1))[1][..., None]
    raise _unknown(kernel)


def derivative_gram(
    kernel: Kernel, x: Float[Tensor, "*q m d"], w: Float[Tensor, "*q m"] | None = None
) -> Float[Tensor, "*q m d m d"]:
    r"""The Gram matrix of the derivatives, $w_i w_j\, \partial_{1,a} \partial_{2,b}\, k(x_i, x_j)$ at [i, a, j, b].

    For a radial kernel with shadow s and second shadow t it is, but for the weights,
    $\delta_{ab}\, s - (x_i - x_j)_a (x_i - x_j)_b\, t$.

    Example:
        >>> from amsip import SquaredExponential
        >>> derivative_gram(SquaredExponential(2.0), torch.zeros(1, 1)).item()
        0.25
    """
    w = torch.ones_like(x[..., 0]) if w is None else w
    match kernel:
        case Sum():
            # the shares enter by their roots as weights, for each pass over the whole array costs as much as making it
            total, *parts = (derivative_gram(k, x, math.sqrt(c) * w) for c, k in kernel.terms)
            for part in parts:
                total = _linalg.accumulate(total, part)
            return total
        case Whitened():
            inner = derivative_gram(kernel.kernel, kernel.whitening.forward(x), w)
            return torch.einsum("...ca,...icjd,...db->...iajb", _root(kernel), inner, _root(kernel))
        case Polynomial():
            weighted = w[..., None] * x
            twist = 2.0 * (kernel.degree - 1) / kernel.scale_for(x) ** 2 * weighted
            outer = weighted.mT.contiguous()[..., None, :, :, None] * twist[..., :, None, None, :]
            return _with_isotropic(outer, _pairs(w) * polynomial_slope(kernel, x))
        case Radial():
            gaps = x[..., :, None, :] - x[..., None, :, :]
            r2 = gaps.square().sum(-1)
            shadow, second = kernel.profile(r2)[1], kernel.second_shadow(r2)
            rows = (gaps * (-_pairs(w) * second)[..., None]).mT.contiguous()
            return _with_isotropic(rows[..., None] * gaps[..., :, None, :, :], _pairs(w) * shadow)
    raise _unknown(kernel)


def derivative_product(
    kernel: Kernel, x: Float[Tensor, "*q m d"], v: Float[Tensor, "*q m d"]
) -> Float[Tensor, "*q m d"]:
    """`derivative_gram(x)` times v, in the memory of one Gram.

    Example:
        >>> from amsip import SquaredExponential
        >>> derivative_product(SquaredExponential(2.0), torch.zeros(1, 1), torch.ones(1, 1)).item()
        0.25
    """
    match kernel:
        case Sum():
            return sum_terms([c * derivative_product(k, x, v) for c, k in kernel.terms])
        case Whitened():
            inner = derivative_product(kernel.kernel, kernel.whitening.forward(x), v @ _root(kernel).mT)
            return inner @ _root(kernel)
        case Polynomial():
            product = polynomial_slope(kernel, x) @ v
            if kernel.degree == 1:
                return product
            return product + 2.0 / kernel.scale_for(x) ** 2 * (x @ v.mT) @ x
        case Radial():
            x = x - x.mean(-2, keepdim=True)
            r2 = _linalg.pairwise_squared_distances(x)
            shadow, second = kernel.profile(r2)[1], kernel.second_shadow(r2)
            pull = second * _gap_products(x, v)
            return shadow @ v - pull.sum(-1, keepdim=True) * x + pull @ x
    raise _unknown(kernel)


def directional_sum(kernel: Kernel, x: Float[Tensor, "*q m d"], v: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m"]:
    r"""$\sum_j v_j \cdot \nabla_2 k(x_i, x_j)$: the transpose of `Kernel.weighted_grad` at the nodes.

    Example:
        >>> from amsip import SquaredExponential
        >>> directional_sum(SquaredExponential(1.0), torch.zeros(1, 1), torch.ones(1, 1)).item()
        0.0
    """
    match kernel:
        case Sum():
            return sum_terms([c * directional_sum(k, x, v) for c, k in kernel.terms])
        case Whitened():
            return directional_sum(kernel.kernel, kernel.whitening.forward(x), v @ _root(kernel).mT)
        case Polynomial():
            return (polynomial_slope(kernel, x) * (x @ v.mT)).sum(-1)
        case Radial():
            x = x - x.mean(-2, keepdim=True)
            shadow = kernel.profile(_linalg.pairwise_squared_distances(x))[1]
            return (shadow * _gap_products(x, v)).sum(-1)
    raise _unknown(kernel)


def derivative_diagonal(kernel: Kernel, x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m d d"]:
    """The diagonal blocks of `derivative_gram(x)`: the squared lengths of a move of each node alone.

    Example:
        >>> from amsip import SquaredExponential
        >>> derivative_diagonal(SquaredExponential(2.0), torch.zeros(3, 1)).flatten()
        tensor([0.2500, 0.2500, 0.2500])
    """
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    match kernel:
        case Sum():
            return sum_terms([c * derivative_diagonal(k, x) for c, k in kernel.terms])
        case Whitened():
            root = _root(kernel)[..., None, :, :]
            return root.mT @ derivative_diagonal(kernel.kernel, kernel.whitening.forward(x)) @ root
        case Polynomial():
            scale = kernel.scale_for(x)
            slope = 1.0 / scale + 2.0 * (kernel.degree - 1) * x.square().sum(-1, keepdim=True) / scale**2
            bend = 2.0 * (kernel.degree - 1) / scale**2 * x
            return slope[..., None] * identity + bend[..., :, None] * x[..., None, :]
        case Radial():
            return kernel.profile(torch.zeros_like(x[..., :1]))[1][..., None] * identity
    raise _unknown(kernel)


def weighted_hessian(
    kernel: Kernel, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
) -> Float[Tensor, "*q m d d"]:
    r"""The Hessian in x of $\sum_j w_j k(x, y_j)$, without the (m, n, d) tensor.

    Example:
        >>> from amsip import SquaredExponential
        >>> weighted_hessian(SquaredExponential(2.0), torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1)).item()
        -0.25
    """
    match kernel:
        case Sum():
            return sum_terms([c * weighted_hessian(k, x, y, w) for c, k in kernel.terms])
        case Whitened():
            chart = kernel.whitening
            inner = weighted_hessian(kernel.kernel, chart.forward(x), chart.forward(y), w)
            root = _root(kernel)[..., None, :, :]
            return root.mT @ inner @ root
        case Polynomial():
            second = (2.0 * (kernel.degree - 1) / kernel.scale_for(x) ** 2) * (y.mT @ (w[..., None] * y))
            return second[..., None, :, :].expand(*second.shape[:-2], *x.shape[-2:], -1).clone()
        case Radial():
            return _radial_hessian(kernel, x, y, w)
    raise _unknown(kernel)


def polynomial_slope(kernel: Polynomial, x: Float[Tensor, "*q m d"]) -> Float[Tensor, "*q m m"]:
    """The derivative of the kernel in x'z, at all pairs of nodes.

    Example:
        >>> polynomial_slope(Polynomial(degree=2, scale=1.0), torch.ones(1, 1)).item()
        3.0
    """
    product = x @ x.mT / kernel.scale_for(x)
    slope = torch.ones_like(product) if kernel.degree == 1 else 1.0 + 2.0 * product
    return slope / kernel.scale_for(x)


def _radial_hessian(kernel: Radial, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    centre = _linalg.middle(y)
    x, y = x - centre, y - centre
    r2 = _linalg.squared_distances(x, y)
    mass = (kernel.profile(r2)[1] @ w[..., None])[..., None]
    second = kernel.second_shadow(r2) * w[..., None, :]
    first = (second @ y)[..., None, :]
    outer = (second @ (y[..., :, None] * y[..., None, :]).flatten(-2)).unflatten(-1, (y.shape[-1], -1))
    column = x[..., :, None]
    total = second.sum(-1)[..., None, None]
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return total * column * column.mT - column * first - (column * first).mT + outer - mass * identity


def _pairs(w: Tensor) -> Tensor:
    """w_i w_j."""
    return w[..., :, None] * w[..., None, :]


def _with_isotropic(blocks: Tensor, diagonal: Tensor) -> Tensor:
    """blocks[i, a, j, b] + delta_ab diagonal[i, j], in the memory of the blocks when no graph is being recorded."""
    if blocks.requires_grad or diagonal.requires_grad:
        identity = torch.eye(blocks.shape[-1], dtype=blocks.dtype, device=blocks.device)[:, None, :]
        return blocks + diagonal[..., :, None, :, None] * identity
    blocks.diagonal(dim1=-3, dim2=-1).add_(diagonal[..., None])
    return blocks


def _gap_products(x: Tensor, v: Tensor) -> Tensor:
    """(x_i - x_j) . v_j."""
    return x @ v.mT - (x * v).sum(-1)[..., None, :]


def _root(kernel: Whitened) -> Tensor:
    return kernel.whitening.inverse_root


def _unknown(kernel: Kernel) -> TypeError:
    return TypeError(f"`kernel` must be radial, polynomial, whitened or a sum of such: got {type(kernel).__name__}.")
